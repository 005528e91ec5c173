"""A success that comes after the expiry: refused, recorded, told, rolled back."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from datp_tasks import Pipeline, failpoints
from datp_tasks.live.live_types import Bell
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.timeouts.history import alerts, history

Data = dict[str, Any]

#: The handler was there before the success, or not at all.
EARLIER_MARKED = ["queued", "RESERVED_TIMEOUT", "LATE_FINISH", "EXPIRED_RESERVED"]


@pytest.fixture
def diary(datp: Kit) -> list[str]:
    """t/pay takes longer than there is time; `handled` lets the handler notice first."""
    notes: list[str] = []

    @datp.step("t/pay")
    def pay(ctx: Any, data: Data) -> Data:
        notes.append("pay")
        datp.clock.advance(seconds=61)
        if data.get("handled"):
            datp.run_job("timeout_handler")
        return {"paid": 5}

    @pay.rollback
    def pay_back(ctx: Any, data: Data, output: Data) -> None:
        assert output == {"paid": 5}
        notes.append("pay back")

    @datp.step("t/told")
    def told(ctx: Any, data: Data) -> None:
        assert data == {
            "txId": ctx.tx_id,
            "output": {"paid": 5},
            "expiresAt": ctx.deadline.isoformat(),
        }
        assert ctx.idempotency_key == f"{ctx.tx_id}:late"
        notes.append("told")

    @datp.step("t/told-later")
    async def told_later(ctx: Any, data: Data) -> None:
        notes.append("told")

    @datp.step("t/deaf")
    def deaf(ctx: Any, data: Data) -> None:
        raise RuntimeError("the ears are broken")

    @datp.step("t/told-many", vector=True)
    def told_many(batch: Any) -> None:
        notes.append("told")

    datp.use(
        Pipeline("vector", on_late="t/told-many").step("t/pay").build(),
        Pipeline("p", on_late="t/told").step("t/pay").build(),
        Pipeline("async", on_late="t/told-later").step("t/pay").build(),
        Pipeline("deaf", on_late="t/deaf").step("t/pay").build(),
        Pipeline("nowhere", on_late="t/nobody-has-it").step("t/pay").build(),
        Pipeline("silent").step("t/pay").build(),
    )
    return notes


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("pipeline", ["p", "async"])
def test_a_late_success_is_refused_told_and_rolled_back(
    datp: Kit, diary: list[str], pipeline: str, handled: bool
) -> None:
    summary = datp.run(pipeline, {"handled": handled}, expires_in_s=60)
    assert (summary.status, summary.output) == (Status.EXPIRED, None)
    assert diary == ["pay", "told", "pay back"]
    assert history(datp, summary.tx_id) == EARLIER_MARKED
    [said] = alerts(datp, "late-finish")
    assert said.startswith("was done only after its expiry at 2027-01-15T08:01:00")


def test_a_success_in_the_last_moment_counts(datp: Kit) -> None:
    @datp.step("t/just")
    def just(ctx: Any, data: Data) -> None:
        datp.clock.advance(seconds=59.999)

    datp.use(Pipeline("just").step("t/just").build())
    assert datp.run("just", {}, expires_in_s=60).status is Status.SUCCESS


def test_a_success_at_the_very_moment_of_expiry_is_too_late(datp: Kit) -> None:
    @datp.step("t/just")
    def just(ctx: Any, data: Data) -> None:
        datp.clock.advance(seconds=60)

    datp.use(Pipeline("just").step("t/just").build())
    assert datp.run("just", {}, expires_in_s=60).status is Status.EXPIRED


@pytest.mark.parametrize(
    ("pipeline", "trouble"),
    [
        ("deaf", "onLate step t/deaf broke: the ears are broken"),
        ("nowhere", "does not offer"),
        ("vector", "onLate step t/told-many broke: it is a vector step"),
    ],
)
def test_a_hook_that_breaks_is_named_and_changes_nothing(
    datp: Kit, diary: list[str], pipeline: str, trouble: str
) -> None:
    summary = datp.run(pipeline, {}, expires_in_s=60)
    assert summary.status is Status.EXPIRED
    assert diary == ["pay", "pay back"]
    [said] = alerts(datp, "late-finish")
    assert trouble in said


def test_without_a_hook_there_is_the_history_and_an_alert(datp: Kit, diary: list[str]) -> None:
    summary = datp.run("silent", {}, expires_in_s=60)
    assert history(datp, summary.tx_id) == EARLIER_MARKED
    assert len(alerts(datp, "late-finish")) == 1


def test_a_crash_after_it_was_told_tells_again_and_ends_once(datp: Kit, diary: list[str]) -> None:
    """At least once, with the same idempotency key: as for any step."""

    @datp.step("t/told-and-dead")
    def told(ctx: Any, data: Data) -> None:
        diary.append("told")
        if diary.count("told") == 1:
            raise failpoints.SimulatedCrash

    datp.use(Pipeline("dead", on_late="t/told-and-dead").step("t/pay").build())
    tx_id = datp.submit("dead", {}, expires_in_s=60)
    assert datp.status(tx_id).status is Status.RUNNING
    datp.recover()
    assert datp.status(tx_id).status is Status.EXPIRED
    assert diary.count("told") == 2
    assert diary.count("pay back") == 1
    assert history(datp, tx_id) == EARLIER_MARKED


def test_a_worker_that_was_away_meanwhile_is_told_that_it_is_over(
    datp: Kit, diary: list[str]
) -> None:
    """The whole expiry happens on another worker, while this one is in its last step."""

    @datp.step("t/paused")
    def paused(ctx: Any, data: Data) -> Data:
        diary.append("pay")
        if diary.count("pay") == 1:
            datp.clock.advance(seconds=61)
            bell = taken_over(datp, ctx.tx_id)
            other = threading.Thread(
                target=datp.process.run_hop, args=(paused, [(bell.tx_id, bell.sequence)])
            )
            other.start()
            other.join(30)
            assert datp.status(ctx.tx_id).status is Status.EXPIRED
            diary.append("awake")
        return {"paid": 5}

    datp.use(Pipeline("paused", on_late="t/told").step("t/paused").build())
    summary = datp.run("paused", {}, expires_in_s=60)
    assert summary.status is Status.EXPIRED
    assert diary == ["pay", "pay", "told", "awake", "told"]
    assert history(datp, summary.tx_id) == EARLIER_MARKED


def taken_over(datp: Kit, tx_id: str) -> Bell:
    """As the reaper does, with a node that is silent."""
    live = datp.connections.live
    fields = live.fields_many([tx_id])[0]
    claim = (tx_id, int(fields["fence"]))
    raised = datp.connections.record.raise_fences([claim])
    [bell] = live.take_over_many([(*claim, raised[tx_id])], fields["node"])
    assert isinstance(bell, Bell)
    return bell
