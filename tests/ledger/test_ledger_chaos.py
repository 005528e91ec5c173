"""Three instances, killed and paused at random, a database that restarts, a ledger that fails.

`DATP_CHAOS_SECONDS` (seconds of trouble) and `DATP_CHAOS_SEED` repeat or lengthen it; see `make
ledger-chaos`.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.record.database import migrate
from tests.ledger.chaos import QUICK, Chaos, problems
from tests.support.eventually import eventually
from tests.support.house import House

TROUBLE_S = float(os.environ.get("DATP_CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("DATP_CHAOS_SEED", random.randrange(1_000_000)))
QUIET_WITHIN_S = 90 + TROUBLE_S / 2

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300 + 3 * TROUBLE_S)]


@pytest.fixture
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    folder: Path = tmp_path_factory.mktemp("chaos")
    postgres = PostgresServer(folder / "postgres", durable=False)
    redis = RedisServer(folder / "redis", appendfsync="no")
    postgres.start()
    redis.start()
    migrate(postgres.url)
    house = House(redis.url, postgres.url, folder, **QUICK)
    made = Chaos(house, postgres, folder, SEED)
    try:
        made.begin()
        yield made
    finally:
        made.end()
        house.close()
        redis.destroy()
        postgres.destroy()


def test_every_batch_is_executed_once_and_in_order_whatever_happens(chaos: Chaos) -> None:
    load = threading.Thread(target=chaos.submit_until_stopped)
    load.start()
    try:
        chaos.break_things(TROUBLE_S)
    finally:
        chaos.heal()
        chaos.stop.set()
        load.join(60)
    told = f"seed {chaos.report.seed}: {dict(chaos.report.done)}"
    eventually(chaos.is_quiet, within_s=QUIET_WITHIN_S, what=f"the end of all batches, {told}")
    assert problems(chaos) == [], told
    assert_it_was_chaos(chaos)


def assert_it_was_chaos(chaos: Chaos) -> None:
    """A run in which nothing happened proves nothing."""
    done = chaos.report.done
    assert sum(len(ids) for ids in chaos.accepted.values()) > 10 * TROUBLE_S
    assert min(done["killed"], done["paused"], done["faults"]) >= TROUBLE_S / 20, done
    assert done["database killed"] + done["database stopped"] >= 1, done
    assert chaos.house.sql("SELECT max(epoch) FROM service_claim")[0][0] > 2
    sources = {row[0] for row in chaos.house.sql("SELECT DISTINCT source FROM batch_status")}
    assert {"submitter", "poller"} <= sources
    assert {"takeover", "queuer"} & sources
    # Some sender came back too late, or never: its end is recorded nowhere but in its attempt.
    rows = chaos.house.sql("SELECT count(*) FROM batch_attempt WHERE attempt > 1")
    assert rows[0][0] > 0
