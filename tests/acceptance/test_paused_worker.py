"""A worker that was paused, and comes back when another one has done its work.

Redis and SQL must both refuse it, whatever it was about to write.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from datp_tasks import Pipeline
from datp_tasks.archive.words import Summary
from datp_tasks.local.processes import ManagedProcess
from datp_tasks.model.status import Status
from tests.acceptance.conftest import NewHouse
from tests.acceptance.house import House, log_of, process_state, wait_until

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def pair(new_house: NewHouse) -> House:
    """Two workers: the one that takes a transaction is paused, the other takes over."""
    house = new_house(step_kill_grace_s=1.5)
    workers = [house.worker(name=name) for name in ("one", "two")]
    house.beat()
    house.use(
        Pipeline("last-step").step("acc/hold"),
        Pipeline("two-steps").step("acc/hold").step("acc/mark"),
        Pipeline("paying").step("acc/pay", timeout_s=0.5).step("acc/mark"),
    )
    house.wait_ready(*workers)
    return house


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """The process stands still inside the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: process_state(pid) == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def run_while_paused(house: House, pipeline: str, topic: str) -> tuple[Summary, int]:
    """Pause who runs the first try; how it ended by then, and who was paused."""
    tx_id = house.submit(pipeline, {"gate": pipeline})
    pid = house.wait_for_note_about(topic, tx_id)["pid"]
    with paused(pid):
        ended = house.client.wait(tx_id, timeout_s=20)
        house.open_gate(pipeline)
    return ended, pid


def wait_for_log(house: House, words: str, tx_id: str) -> None:
    def said() -> bool:
        logs = [log_of(process) for process in house.processes]
        return any(words in line and tx_id in line for log in logs for line in log.splitlines())

    wait_until(said, what=f"'{words}' in a log")


def assert_unchanged(house: House, ended: Summary) -> None:
    """SQL, the log of state changes and Redis say what they said when it ended."""
    assert house.client.status(ended.tx_id) == ended
    assert house.finals_logged(ended.tx_id) == [ended.status]
    assert house.fields(ended.tx_id)["status"] == ended.status


def test_one_that_wants_to_go_on_to_its_next_step_is_refused_by_redis(pair: House) -> None:
    ended, pid = run_while_paused(pair, "two-steps", "hold")
    assert ended.status is Status.SUCCESS
    assert ended.output is not None
    assert ended.output["attempt"] == 2
    assert ended.output["pid"] != pid
    before = pair.fields(ended.tx_id)
    wait_for_log(pair, "belongs to another worker now", ended.tx_id)
    assert pair.fields(ended.tx_id) == before
    assert_unchanged(pair, ended)
    marks = [each["pid"] for each in pair.notes("mark") if each["tx"] == ended.tx_id]
    assert marks == [ended.output["pid"]]


def test_one_that_wants_to_end_is_refused_by_sql(pair: House) -> None:
    ended, pid = run_while_paused(pair, "last-step", "hold")
    assert ended.output is not None
    assert ended.output["pid"] != pid
    pair.wait_for_note_about("held", ended.tx_id, number=2)
    # The process is free again only when it has been refused.
    wait_until(lambda: pid in pids_of_new_runs(pair), what="a new hop of the paused process")
    assert_unchanged(pair, ended)


def test_one_in_the_middle_of_its_sql_effect_is_refused_there(pair: House) -> None:
    """It holds a lock on its row, so this also shows that nobody waits for that lock for ever."""
    ended, pid = run_while_paused(pair, "paying", "pay")
    assert ended.status is Status.SUCCESS
    paid = pair.sql("SELECT step_key FROM payment WHERE tx_id = :tx", tx=ended.tx_id)
    assert len(paid) == 1
    # Its time is up as well, so it may also have been killed by its own watchman.
    wait_until(lambda: process_state(pid) in ("", "Z") or pid in pids_of_new_runs(pair))
    assert pair.sql("SELECT step_key FROM payment WHERE tx_id = :tx", tx=ended.tx_id) == paid
    assert_unchanged(pair, ended)


def pids_of_new_runs(house: House) -> set[int]:
    """Who runs transactions now: both processes, if both are free."""
    tx_ids = [house.submit("last-step") for _ in range(4)]
    wait_until(lambda: house.all_final(tx_ids))
    return {each["pid"] for each in house.notes("held") if each["tx"] in tx_ids}


def test_one_that_stopped_right_before_the_final_commit_is_refused(house: House) -> None:
    house.use(Pipeline("last-step").step("acc/hold"))
    first = house.worker(failpoints="hop.before_final=stop")
    house.beat()
    house.wait_ready(first)
    tx_id = house.submit("last-step")
    pid = house.wait_for_note_about("held", tx_id)["pid"]
    wait_until(lambda: process_state(pid) == "T", what="the stop before the commit")
    assert house.finals_logged(tx_id) == []
    second = house.worker()
    house.wait_ready(second)
    ended = house.client.wait(tx_id, timeout_s=20)
    assert ended.output is not None
    assert ended.output["attempt"] == 2
    os.kill(pid, signal.SIGCONT)
    assert_refused_by_sql(house, first)
    assert_unchanged(house, ended)


def assert_refused_by_sql(house: House, worker: ManagedProcess) -> None:
    wait_until(lambda: "SQL refused" in log_of(worker), what="the refusal")
