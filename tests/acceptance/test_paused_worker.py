"""A worker that was paused, and comes back when its work belongs to another one.

Redis and SQL must both refuse it, whatever it was about to write, and whether the other one has
ended the transaction or is still at it.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from datp_tasks import Pipeline
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary
from tests.support.eventually import eventually
from tests.support.house import House, log_of, process_state
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance

#: PostgreSQL ends an effect that has been silent for this and the grace time of the house.
PAYING_S = 3.0


@pytest.fixture(scope="module")
def pair(new_house: NewHouse) -> House:
    """Two workers: the one that takes a transaction is paused, the other takes over."""
    house = new_house(step_kill_grace_s=1.5)
    workers = [house.worker(name=name) for name in ("one", "two")]
    house.beat()
    house.use(
        Pipeline("last-step").step("acc/hold"),
        Pipeline("two-steps").step("acc/hold").step("acc/mark"),
        Pipeline("paying").step("acc/pay", timeout_s=PAYING_S).step("acc/mark"),
    )
    house.wait_ready(*workers)
    return house


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """The process stands still inside the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: process_state(pid) == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def run_while_paused(house: House, pipeline: str, topic: str) -> tuple[Summary, int]:
    """Pause who runs the first try; how the other one ended it, and who was paused."""
    gate = f"{pipeline}-ended"
    tx_id = house.submit(pipeline, {"gates": [gate]})
    pid = int(house.wait_for_note_about(topic, tx_id)["pid"])
    with paused(pid):
        ended = house.client.wait(tx_id, timeout_s=20)
        house.open_gate(gate)
    return ended, pid


def take_over_while_paused(house: House, pipeline: str) -> tuple[str, str]:
    """Pause who runs the first try until another one is in the second; its id and that gate."""
    first, second = f"{pipeline}-first", f"{pipeline}-second"
    tx_id = house.submit(pipeline, {"gates": [first, second]})
    pid = int(house.wait_for_note_about("hold", tx_id)["pid"])
    with paused(pid):
        house.wait_for_note_about("hold", tx_id, number=2)
        house.open_gate(first)
    house.wait_for_note_about("held", tx_id)
    return tx_id, second


def wait_for_log(house: House, words: str) -> None:
    logs = [process.log_path for process in house.processes]
    eventually(lambda: any(words in path.read_text() for path in logs), what=f"{words!r} in a log")


def wait_until_free(house: House, pid: int) -> None:
    """Until a process runs other transactions, so it must be done with the one it was paused in.

    It may also have been killed by its own watchman, for a step whose time was up meanwhile.
    """

    def runs_others() -> bool:
        tx_ids = [house.submit("last-step") for _ in range(4)]
        eventually(lambda: house.all_final(tx_ids))
        return pid in {each["pid"] for each in house.notes("held") if each["tx"] in tx_ids}

    eventually(lambda: process_state(pid) in ("", "Z") or runs_others(), what="a new hop")


def assert_unchanged(house: House, ended: Summary) -> None:
    """SQL, the log of state changes and Redis say what they said when it ended."""
    assert house.client.status(ended.tx_id) == ended
    assert house.finals_logged(ended.tx_id) == [ended.status]
    assert house.fields(ended.tx_id)["status"] == ended.status


def assert_ended_by_second_try(house: House, ended: Summary, first_pid: int) -> None:
    assert ended.status is Status.SUCCESS
    assert ended.output is not None
    assert ended.output["attempt"] == 2
    assert ended.output["pid"] != first_pid
    assert_unchanged(house, ended)


def test_redis_refuses_its_next_step_when_another_has_ended_it(pair: House) -> None:
    ended, pid = run_while_paused(pair, "two-steps", "hold")
    before = pair.fields(ended.tx_id)
    wait_for_log(pair, f"{ended.tx_id} is another worker's now")
    assert pair.fields(ended.tx_id) == before
    assert_ended_by_second_try(pair, ended, pid)
    assert [each["pid"] for each in pair.notes_about("mark", ended.tx_id)] != [pid]


def test_redis_refuses_its_next_step_while_another_runs_it(pair: House) -> None:
    tx_id, gate = take_over_while_paused(pair, "two-steps")
    wait_for_log(pair, f"{tx_id} is another worker's now")
    assert pair.client.status(tx_id).status is Status.RUNNING
    assert not pair.notes_about("mark", tx_id)
    pair.open_gate(gate)
    ended = pair.client.wait(tx_id, timeout_s=10)
    assert_ended_by_second_try(pair, ended, int(pair.notes_about("hold", tx_id)[0]["pid"]))
    assert len(pair.notes_about("mark", tx_id)) == 1


def test_sql_refuses_its_end_when_another_has_ended_it(pair: House) -> None:
    ended, pid = run_while_paused(pair, "last-step", "hold")
    pair.wait_for_note_about("held", ended.tx_id, number=2)
    wait_until_free(pair, pid)
    assert_ended_by_second_try(pair, ended, pid)


def test_sql_refuses_its_end_while_another_runs_it(pair: House) -> None:
    tx_id, gate = take_over_while_paused(pair, "last-step")
    pid = int(pair.notes_about("hold", tx_id)[0]["pid"])
    wait_until_free(pair, pid)
    assert pair.client.status(tx_id).status is Status.RUNNING
    assert pair.finals_logged(tx_id) == []
    pair.open_gate(gate)
    assert_ended_by_second_try(pair, pair.client.wait(tx_id, timeout_s=10), pid)


def test_one_paused_in_the_middle_of_its_sql_effect_is_taken_over(pair: House) -> None:
    """It holds locks on the rows of all that share its transaction: none of them for ever."""
    locked, neighbour = (pair.submit_silently("paying", {"gates": ["paying"]}) for _ in range(2))
    pair.send("acc/pay", [(locked, 1), (neighbour, 1)], group="master", priority="in")
    pid = int(pair.wait_for_note_about("pay", locked)["pid"])
    with paused(pid):
        assert pair.client.wait(neighbour, timeout_s=20).status is Status.SUCCESS
        ended = pair.client.wait(locked, timeout_s=20)
        pair.open_gate("paying")
    assert ended.status is Status.SUCCESS
    wait_until_free(pair, pid)
    for tx_id in (locked, neighbour):
        assert len(pair.sql("SELECT 1 FROM payment WHERE tx_id = :tx", tx=tx_id)) == 1
    assert_unchanged(pair, ended)


def test_sql_refuses_an_effect_that_begins_too_late(house: House) -> None:
    """Stopped right before its payment; the other one is in the same step, and will fail it."""
    house.use(Pipeline("late").step("acc/mark").step("acc/pay"))
    first = house.worker(failpoints="hop.after_checkpoint=stop")
    house.beat()
    house.wait_ready(first)
    # Only the second try waits: the first one has to be stopped before it comes to that.
    house.open_gate("none")
    tx_id = house.submit("late", {"gates": ["none", "late"], "fails_at": 2})
    pid = int(house.wait_for_note_about("mark", tx_id)["pid"])
    eventually(lambda: process_state(pid) == "T", what="the stop before the payment")
    house.wait_ready(house.worker())
    house.wait_for_note_about("pay", tx_id)
    os.kill(pid, signal.SIGCONT)
    # Only when its hop is over, one way or the other, may the other one go on.
    done = re.compile(r"Task datp\.step\.acc/mark\[.* (succeeded|raised)")
    eventually(lambda: done.search(log_of(first)), what="the end of its hop")
    house.open_gate("late")
    ended = house.client.wait(tx_id, timeout_s=10)
    assert ended.status is Status.FAILED
    assert [each["attempt"] for each in house.notes_about("pay", tx_id)] == [2]
    assert house.sql("SELECT 1 FROM payment WHERE tx_id = :tx", tx=tx_id) == []
    assert_unchanged(house, ended)


def test_one_that_stopped_right_before_the_final_commit_is_refused(house: House) -> None:
    house.use(Pipeline("last-step").step("acc/hold"))
    first = house.worker(failpoints="hop.before_final=stop")
    house.beat()
    house.wait_ready(first)
    tx_id = house.submit("last-step")
    pid = int(house.wait_for_note_about("held", tx_id)["pid"])
    eventually(lambda: process_state(pid) == "T", what="the stop before the commit")
    assert house.finals_logged(tx_id) == []
    house.wait_ready(house.worker())
    ended = house.client.wait(tx_id, timeout_s=20)
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: "SQL refused" in log_of(first), what="the refusal")
    assert_ended_by_second_try(house, ended, pid)
