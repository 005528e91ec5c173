"""Redis and PostgreSQL killed, and Redis wiped, under load: what was accepted ends, once.

Nobody has to help, except that a process which ends is started again.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError

from datp_tasks import Pipeline
from datp_tasks.client.requests import Request, Submitted
from datp_tasks.errors import DatpError
from datp_tasks.local.embedded_server import EmbeddedServer
from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.model.status import FINAL, Status
from datp_tasks.record.database import migrate
from tests.support.eventually import eventually
from tests.support.house import House
from tests.support.house_fixtures import prepare_payments

pytestmark = pytest.mark.acceptance

LOAD = 90
PAYMENTS_EACH = 3
BATCH = 30


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("restarts") / "redis")
    server.start()
    yield server
    server.destroy()


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="datp-restarts-"))
    folder.chmod(0o711)
    # A commit that was answered must survive a kill of the server.
    server = PostgresServer(
        folder / "postgres", durable=False, settings={"synchronous_commit": "on"}
    )
    server.start()
    migrate(server.url)
    prepare_payments(server.url)
    yield server
    server.destroy()
    shutil.rmtree(folder, ignore_errors=True)


class Site:
    """A house with workers of two groups, under a supervisor that starts again what has ended."""

    def __init__(self, house: House) -> None:
        self.house = house
        far = Pipeline("far", group="far", startable=False).step("acc/pay-quietly")
        near = Pipeline("near").step("acc/pay-quietly").step("acc/call", params=CALL_FAR)
        house.use(far, near.step("acc/pay-quietly"))
        self._crew = [house.worker("master", concurrency=2), house.worker("far"), house.beat()]
        house.wait_ready(*self._crew[:2])
        self.accepted: list[str] = []

    def wait_until(self, condition: Callable[[], object], *, within_s: float, what: str) -> None:
        """Meanwhile processes that have ended are started again."""

        def supervised() -> object:
            for process in self._crew:
                if not process.is_running():
                    process.restart()
            return condition()

        eventually(supervised, within_s=within_s, what=what)

    def count(self) -> tuple[int, int]:
        """How many transactions are open, and how many have ended."""
        rows = self.house.sql(
            "SELECT count(*) FILTER (WHERE status <> ALL(:final)) AS open,"
            " count(*) FILTER (WHERE status = ANY(:final)) AS ended FROM tx_summary",
            final=list(FINAL),
        )
        return rows[0].open, rows[0].ended

    def load(self, prefix: str, count: int) -> threading.Thread:
        """Submit as a careful client does: again, under the same ids, until they are accepted."""

        def submit_all() -> None:
            pause = threading.Event()
            for start in range(0, count, BATCH):
                external_ids = [f"{prefix}-{start + number}" for number in range(BATCH)]
                while not self._accepts(external_ids):
                    pause.wait(0.1)
                pause.wait(0.05)

        thread = threading.Thread(target=submit_all)
        thread.start()
        return thread

    def _accepts(self, external_ids: list[str]) -> bool:
        requests = [
            Request(pipeline="near", input={}, owner="loader", external_id=each)
            for each in external_ids
        ]
        try:
            answers = self.house.client.submit_many(requests)
        except (RedisError, DBAPIError, DatpError):
            return False
        assert all(isinstance(answer, Submitted) for answer in answers), answers
        self.accepted += [answer.tx_id for answer in answers if isinstance(answer, Submitted)]
        return True

    def wait_until_busy(self) -> None:
        """A trouble must come in the middle of the work, or it would prove nothing."""
        _, before = self.count()

        def busy() -> bool:
            open_now, ended_now = self.count()
            return open_now >= BATCH / 2 and ended_now > before + 5

        self.wait_until(busy, within_s=20, what="enough work")

    def crash(self, server: EmbeddedServer, *, down_s: float) -> None:
        server.kill()
        until_s = time.monotonic() + down_s
        self.wait_until(lambda: time.monotonic() > until_s, within_s=30, what="the outage")
        server.start()

    def assert_everything_happened_once(self, count: int) -> None:
        house, tx_ids = self.house, self.accepted
        assert len(set(tx_ids)) == len(tx_ids) == count
        found = house.connections.record.summaries(tx_ids)
        bad = [each for each in found if each.status is not Status.SUCCESS]
        assert not bad, bad[:3]
        paid = house.sql("SELECT tx_id, step_key, count(*) AS n FROM payment GROUP BY 1, 2")
        assert {row.n for row in paid} == {1}
        assert len(paid) == count * PAYMENTS_EACH
        ends = house.sql(
            "SELECT tx_id, count(*) AS n FROM tx_state_change WHERE status = 'success' GROUP BY 1"
        )
        assert [row.n for row in ends] == [1] * count
        rows = house.sql("SELECT count(*) AS n FROM tx_summary")
        assert rows[0].n == count, "an external id was accepted twice"


CALL_FAR = {"pipeline": "far"}


@pytest.fixture
def site(own_redis: RedisServer, own_postgres: PostgresServer, tmp_path: Path) -> Iterator[Site]:
    house = House(own_redis.url, own_postgres.url, tmp_path)
    yield Site(house)
    house.close()


def test_crashes_and_a_wiped_redis_under_load_lose_nothing_and_double_nothing(
    site: Site, own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    troubles: list[Callable[[], object]] = [
        lambda: site.crash(own_redis, down_s=1.0),
        lambda: site.crash(own_postgres, down_s=1.0),
        site.house.redis.flushall,
    ]
    for number, trouble in enumerate(troubles):
        loader = site.load(f"load-{number}", LOAD)
        site.wait_until_busy()
        trouble()
        site.wait_until(lambda: not loader.is_alive(), within_s=60, what="the end of the load")  # noqa: B023
    site.wait_until(lambda: site.count()[0] == 0, within_s=60, what="the end of all transactions")
    site.assert_everything_happened_once(LOAD * len(troubles))
    # Nothing is left behind anywhere.
    empty = ("queuedZ", "processingZ", "sleepingZ", "exceptionZ")
    sizes = site.house.connections.live.sizes
    eventually(lambda: not any(sizes()[name] for name in empty), what="empty lists")
