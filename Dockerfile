FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements.lock ./
# Every file is checked against its hash in the lock file. Nothing is installed from elsewhere: from
# here on pip sees only this folder.
RUN pip download --no-cache-dir --no-deps --only-binary :all: --require-hashes --dest /wheels --requirement requirements.lock
COPY pyproject.toml README.md LICENSE celeryconfig.py ./
COPY datp_tasks datp_tasks
COPY migrations migrations
COPY examples examples
RUN pip install --no-index --find-links /wheels hatchling \
 && pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python -m venv /venv \
 && /venv/bin/pip install --no-index --find-links /wheels datp-tasks

# Flower is a web server of its own, and only one service needs it.
FROM build AS build-flower
RUN /venv/bin/pip install --no-index --find-links /wheels "datp-tasks[flower]"

FROM python:3.12-slim AS run
RUN useradd --create-home --uid 10001 datp
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER datp
WORKDIR /home/datp

FROM run AS flower
COPY --from=build-flower /venv /venv
CMD ["celery", "-A", "datp_tasks", "flower"]

# The last stage is what `docker build .` makes.
FROM run AS datp
COPY --from=build /venv /venv
CMD ["datp", "--help"]
