"""kill -9 and SIGSTOP of real workers, each at a named point: a transfer still ends once.

`DATP_SWEEP_ALL=1` tries every point that a worker passes (see `make chaos`), else some of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.record.database import migrate
from tests.chaos.process_sweep import QUICK, STEPS, ProcessSweep, environment
from tests.support.bank import Bank
from tests.support.eventually import eventually
from tests.support.house import House, log_of

ALL = bool(os.environ.get("DATP_SWEEP_ALL"))
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(7_200 if ALL else 240)]

#: One at each kind of boundary: a script, the outside, a commit, a message.
KILLED = (
    # A claim goes with the answer to the doorbell that the message came from.
    "script:answer+claim:after",
    "script:ring:after",
    "effect:chaos/send:after",
    "commit:effects.open:after",
    "commit:transactions.finish:after",
)
STOPPED = ("effect:chaos/send:before", "hop.before_final", "script:finish:before")


@pytest.fixture(scope="module")
def sweep(datp_bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessSweep]:
    folder: Path = tmp_path_factory.mktemp("process-sweep")
    folder.chmod(0o711)
    postgres = PostgresServer(folder / "postgres", durable=False)
    redis = RedisServer(folder / "redis", appendfsync="no")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(datp_bank).items():
            patch.setenv(name, value)
        try:
            postgres.start()
            redis.start()
            migrate(postgres.url)
            house = House(redis.url, postgres.url, folder, **(QUICK | {"steps": STEPS}))
            try:
                yield ProcessSweep(house, datp_bank, folder)
            finally:
                house.close()
        finally:
            redis.destroy()
            postgres.destroy()


def check(sweep: ProcessSweep, points: Sequence[str], action: str) -> None:
    """Nothing is wrong after that was done at each of the points, and it was done."""
    assert set(KILLED + STOPPED) <= set(points) or not ALL
    sweep.missed.clear()
    found = {point: sweep.complaints(point, action) for point in points}
    assert {point: wrong for point, wrong in found.items() if wrong} == {}
    if ALL:
        # What a process does once in its life was over before.
        assert len(sweep.missed) <= len(points) / 10, sweep.missed
    else:
        assert sweep.missed == []


def test_a_worker_that_is_killed_anywhere_changes_nothing(sweep: ProcessSweep) -> None:
    check(sweep, sweep.points() if ALL else KILLED, "kill")


def test_a_worker_that_stands_still_anywhere_and_goes_on_changes_nothing(
    sweep: ProcessSweep,
) -> None:
    check(sweep, sweep.points() if ALL else STOPPED, "stop")

    def is_refused() -> bool:
        logs = "".join(log_of(process) for process in sweep.house.processes)
        return "another worker's now" in logs or "SQL refused" in logs

    # Somewhere on the way the old fence must have been refused, or nothing was proved. The worker
    # says so a moment after it goes on.
    eventually(is_refused, what="the refusal of an old fence")
