"""A step that does not return: its neighbours go on, and in the end so does its transaction."""

from __future__ import annotations

import time

import pytest

from datp_tasks import Pipeline
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House, log_of, process_state

pytestmark = pytest.mark.acceptance

IN_VECTOR = 7
STUCK = 2


def test_the_neighbours_of_a_stuck_step_finish_elsewhere_each_once(house: House) -> None:
    house.use(Pipeline("held").step("acc/hold").step("acc/mark"))
    house.wait_ready(house.worker(concurrency=2))
    tx_ids = [
        house.submit_silently("held", {"gates": ["stuck"]} if place == STUCK else {})
        for place in range(IN_VECTOR)
    ]
    house.send("acc/hold", [(tx_id, 1) for tx_id in tx_ids], group="master", priority="in")
    stuck = tx_ids[STUCK]
    stuck_pid = house.wait_for_note_about("hold", stuck)["pid"]
    others = [tx_id for tx_id in tx_ids if tx_id != stuck]
    eventually(lambda: house.all_final(others), within_s=10, what="the end of the neighbours")
    assert house.client.status(stuck).status is Status.RUNNING
    assert not house.notes_about("held", stuck)
    for topic in ("held", "mark"):
        assert [len(house.notes_about(topic, tx_id)) for tx_id in others] == [1] * len(others)
    first = {tx_id: house.notes_about("hold", tx_id)[0]["pid"] for tx_id in others}
    # Those before it had been done here and only went on elsewhere; those after it left whole.
    assert {first[tx_id] for tx_id in tx_ids[:STUCK]} == {stuck_pid}
    assert {first[tx_id] for tx_id in tx_ids[STUCK + 1 :]}.isdisjoint({stuck_pid})
    assert all(house.notes_about("mark", tx_id)[0]["pid"] != stuck_pid for tx_id in others)

    house.open_gate("stuck")
    ended = house.client.wait(stuck, timeout_s=10)
    assert (ended.status, ended.output) == (Status.SUCCESS, {"pid": stuck_pid, "attempt": 1})
    # What had been taken away from the stuck worker was not run there as well.
    for topic in ("held", "mark"):
        assert [len(house.notes_about(topic, tx_id)) for tx_id in tx_ids] == [1] * IN_VECTOR


def test_a_step_that_no_alarm_reaches_has_its_process_killed(house: House) -> None:
    house.use(Pipeline("deaf").step("acc/deaf"))
    worker = house.worker(concurrency=2, step_kill_grace_s=0.5, crashes_max=2)
    house.beat()
    house.wait_ready(worker)
    once, always = house.submit("deaf"), house.submit("deaf", {"stuck_tries": 99})
    started_s = time.monotonic()
    pid = house.wait_for_note_about("deaf", once)["pid"]
    ended = house.client.wait(once, timeout_s=20)
    assert (ended.status, ended.output) == (Status.SUCCESS, {"attempt": 2})
    assert time.monotonic() - started_s < 15
    assert process_state(pid) in ("", "Z")
    eventually(lambda: house.client.status(always).status is Status.IN_DOUBT)
    assert "lost its worker 2 times" in (house.client.status(always).note or "")
    assert len(house.notes_about("deaf", always)) == 2
    # The worker itself goes on with new children.
    assert house.client.wait(house.submit("deaf", {"stuck_tries": 0}), timeout_s=10).output


def test_a_step_that_holds_the_interpreter_is_taken_over_too(house: House) -> None:
    """No thread of its process runs any more, so nothing but its silence tells of it."""
    house.use(Pipeline("frozen").step("acc/frozen"))
    worker = house.worker(concurrency=2)
    house.beat()
    house.wait_ready(worker)
    ended = house.client.wait(house.submit("frozen"), timeout_s=20)
    assert (ended.status, ended.output) == (Status.SUCCESS, {"attempt": 2})


def test_a_process_whose_hop_broke_is_not_killed_for_it_later(house: House) -> None:
    house.use(Pipeline("breaks").step("acc/review", timeout_s=0.3), Pipeline("fine").step(FINE))
    worker = house.worker(step_kill_grace_s=0.3, failpoints="hop.after_begin=raise")
    house.wait_ready(worker)
    pid = house.notes_about("mark", house.run("fine").tx_id)[0]["pid"]
    house.submit("breaks")
    eventually(lambda: "FailpointError" in log_of(worker), what="the broken hop")
    ends_at_s = time.monotonic() + 2
    while time.monotonic() < ends_at_s:
        assert house.notes_about("mark", house.run("fine").tx_id)[0]["pid"] == pid


FINE = "acc/mark"
