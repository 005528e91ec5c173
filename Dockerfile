FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE celeryconfig.py ./
COPY datp_tasks datp_tasks
COPY migrations migrations
COPY examples examples
# The versions of the lock file, but only of what the product itself needs.
RUN grep -oE '^[A-Za-z0-9._-]+==[^ ]+' requirements.lock > constraints.txt \
 && python -m venv /venv \
 && pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && /venv/bin/pip install --no-cache-dir --constraint constraints.txt /wheels/*.whl

FROM python:3.12-slim
RUN useradd --create-home --uid 10001 datp
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
USER datp
WORKDIR /home/datp
CMD ["datp", "--help"]
