"""Expiries race the point of no return in real workers: never both, never neither.

The constraints of the table that refuse both are taken away first, so that what is left is the
guard of each statement. DATP_RACE_TRIES asks for more than the few hundred of a usual run.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from datp_tasks import Pipeline, Request, failpoints
from datp_tasks.runtime import jobs
from tests.support.eventually import eventually
from tests.support.house import House, log_of
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance

TRIES = int(os.environ.get("DATP_RACE_TRIES", "240"))
WAVE = 20
#: What a handler takes between looking what is due and marking it, at most.
THINKS_MS_MAX = 60
SEED = 11

ENDS = """
SELECT s.tx_id, s.status, s.no_return_at IS NOT NULL AS is_past,
       s.expiring_at IS NOT NULL AS is_expiring,
       (SELECT count(*) FROM payment p WHERE p.tx_id = s.tx_id) AS paid
FROM tx_summary s
"""
OPEN = """
SELECT count(*) AS n FROM tx_summary WHERE tx_id = ANY(:ids)
  AND completed_at IS NULL AND no_return_at IS NULL AND expiring_at IS NULL
"""
IN_TIME = "SELECT count(no_return_at) AS n FROM tx_summary WHERE tx_id = ANY(:ids)"
LEFT = "SELECT count(*) AS n FROM tx_summary WHERE completed_at IS NULL"
CONSTRAINTS = """
SELECT conname FROM pg_constraint
WHERE conrelid = 'tx_summary'::regclass AND pg_get_constraintdef(oid) LIKE '%no_return_at%'
"""


@contextmanager
def handlers(house: House, count: int) -> Iterator[list[BaseException]]:
    """Timeout handlers of this process, beside that of the workers; they pause in the middle."""
    over, errors = threading.Event(), []
    rng = random.Random(SEED)

    def think(point: str) -> None:
        if point == "timeouts.after_seize":
            time.sleep(rng.uniform(0, THINKS_MS_MAX) / 1_000)

    def handle() -> None:
        while not over.wait(0.02):
            try:
                jobs.run("timeout_handler", house.connections, lambda group: 0)
            except BaseException as error:
                errors.append(error)
                return

    failpoints.watch(think)
    threads = [threading.Thread(target=handle) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        over.set()
        for thread in threads:
            thread.join(20)
        failpoints.disarm_all()


def submit(house: House) -> None:
    """Waves, of which some should be in time and some not, however busy the machine is."""
    rng = random.Random(SEED)
    latest_s = 0.7
    for _ in range(0, TRIES, WAVE):
        wave = [
            Request(
                pipeline="race",
                input={"hold_ms": rng.randint(10, 50)},
                expires_in_s=rng.uniform(0.06, latest_s),
            )
            for _ in range(WAVE)
        ]
        answers = house.client.submit_many(wave)
        ids = [each.tx_id for each in answers]  # type: ignore[union-attr]
        time.sleep(latest_s / 2)
        eventually(
            lambda ids=ids: house.sql(OPEN, ids=ids)[0].n <= WAVE / 4,  # type: ignore[misc]
            what="the decisions of a wave",
        )
        in_time = house.sql(IN_TIME, ids=ids)[0].n / WAVE
        if in_time < 0.35:
            latest_s = min(10.0, latest_s * 1.5)
        elif in_time > 0.65:
            latest_s = max(0.1, latest_s / 1.5)


@pytest.mark.timeout(max(120, TRIES // 5))
def test_of_an_expiry_and_a_point_of_no_return_in_workers_exactly_one_happens(
    new_house: NewHouse,
) -> None:
    house = new_house(timeout_handler_period_s=0.1, timeout_retry_s=0.5, sql_pool_size=8)
    for row in house.sql(CONSTRAINTS):
        house.sql(f"ALTER TABLE tx_summary DROP CONSTRAINT {row.conname}")
    delay = {"seconds": 1}
    house.use(
        # After the point it sleeps past its expiry: only the mark can save it.
        Pipeline("race").step("acc/pay-for-good", final_from=True).step("util/delay", params=delay)
    )
    worker = house.worker(concurrency=3)
    house.beat()
    house.wait_ready(worker, within_s=60)
    with handlers(house, 2) as errors:
        submit(house)
        within_s = 20 + TRIES / 50
        eventually(lambda: house.sql(LEFT)[0].n == 0, within_s=within_s, what="their ends")
    assert errors == []
    ends = house.sql(ENDS)
    assert len(ends) == TRIES
    right = {("success", True, False, 1), ("expired", False, True, 0), ("expired", False, False, 0)}
    seen = Counter((e.status, e.is_past, e.is_expiring, e.paid) for e in ends)
    assert {what: n for what, n in seen.items() if what not in right} == {}
    # Both have won often, or it was no race.
    by_status = Counter(end.status for end in ends)
    assert min(by_status["success"], by_status["expired"]) > TRIES / 20, by_status
    # As Celery says of a job that broke.
    assert "raised unexpected" not in log_of(worker)
