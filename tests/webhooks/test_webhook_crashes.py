"""A sender can die at any point: every event is delivered all the same, under its one id."""

from __future__ import annotations

import pytest

from datp_tasks import failpoints
from datp_tasks.failpoints import POINTS, SimulatedCrash
from datp_tasks.testing import Kit
from tests.support.receiver import Receiver, answers

WEBHOOK_POINTS = [point for point in POINTS if point.startswith("webhooks.")]
EVENTS = 4


def submit(kit: Kit, receiver: Receiver) -> str:
    """Dies with the worker that ends it, if that is what was planned; then it is repaired."""
    tx_id = kit.submit("pay", {"reports": 3}, webhook=receiver.url("/crash"), progress_reports=True)
    for _ in range(5):
        if kit.status(tx_id).is_final:
            return tx_id
        kit.repair()
    raise AssertionError(f"it has not ended: {kit.status(tx_id)}")


def run_job(kit: Kit) -> bool:
    """Whether the sender survived."""
    try:
        kit.run_job("webhook_sender")
    except SimulatedCrash:
        return False
    return True


@pytest.mark.parametrize("point", WEBHOOK_POINTS)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_at_any_point_loses_no_event(
    kit: Kit, receiver: Receiver, point: str, nth: int
) -> None:
    crashes = 0

    def die() -> None:
        nonlocal crashes
        crashes += 1
        raise SimulatedCrash

    failpoints.arm(point, die, nth=nth)
    # One answer is no success, so that a retry is on the way too.
    receiver.plan("/crash", answers(500))
    tx_id = submit(kit, receiver)
    for _ in range(6):
        run_job(kit)
        kit.clock.advance(seconds=kit.settings.webhook_hold_s + 1)
    assert crashes == 1, f"{point} was not reached {nth} times"
    failpoints.disarm_all()
    told = {got.data["sequence"]: got for got in receiver.got}
    # The worker may have died in a report and have run its step again: there are more then.
    last = kit.status(tx_id).sequence
    assert sorted(told) == list(range(1, last + 1))
    assert last >= EVENTS
    assert {got.id for got in receiver.got} == {f"msg_{tx_id}_{n}" for n in range(1, last + 1)}
    assert all(got.body == told[got.data["sequence"]].body for got in receiver.got)
    found = kit.connections.webhooks.store.deliveries(tx_id=tx_id)
    assert {each.state for each in found} == {"delivered"}
    assert kit.connections.webhooks.schedule.size() == 0


def test_what_a_sender_that_died_had_taken_is_still_on_the_schedule(
    kit: Kit, receiver: Receiver
) -> None:
    """It is sent by the next sender, long before the repair looks for what is overdue."""
    kit.submit("pay", {}, webhook=receiver.url())
    assert kit.connections.webhooks.schedule.size() == 1
    kit.crash_at("webhooks.after_take")
    assert not run_job(kit)
    assert kit.connections.webhooks.schedule.size() == 1


def test_a_worker_that_dies_after_the_final_commit_has_not_forgotten_the_webhook(
    kit: Kit, receiver: Receiver
) -> None:
    """It was to tell Redis; SQL has it, and it is found there."""
    kit.crash_at("webhooks.before_place")
    tx_id = kit.submit("pay", {}, webhook=receiver.url())
    assert kit.connections.record.summaries([tx_id])[0].is_final
    assert kit.connections.webhooks.schedule.size() == 0
    failpoints.disarm_all()
    kit.advance(seconds=kit.settings.webhook_overdue_s + 1)
    assert [got.data["status"] for got in receiver.got] == ["success"]
