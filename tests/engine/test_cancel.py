"""Taking a transaction back: at once if nothing has begun, else with a rollback."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Fail, Pipeline, Sleep
from datp_tasks.errors import TransactionFinal, TransactionUnknown
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

Data = dict[str, Any]


@pytest.fixture
def diary(datp: Kit) -> list[str]:
    """Steps that note what they do: t/do (can be undone), t/wait (sleeps), t/cancel (itself)."""
    notes: list[str] = []

    @datp.step("t/do")
    def do(ctx: Any, data: Data) -> None:
        notes.append("do")

    @do.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        notes.append("undo")

    @datp.step("t/wait")
    def wait(ctx: Any, data: Data) -> Sleep | None:
        notes.append("wait")
        return Sleep(seconds=3_600) if ctx.sleeps == 0 else None

    @datp.step("t/cancel")
    def cancel(ctx: Any, data: Data) -> None:
        notes.append("cancel")
        assert datp.client.cancel(ctx.tx_id, "changed my mind").status is Status.RUNNING

    datp.use(
        Pipeline("do").step("t/do").build(),
        Pipeline("wait").step("t/wait").step("t/do").build(),
        Pipeline("do-wait").step("t/do").step("t/wait").step("t/do").build(),
        Pipeline("between").step("t/do").step("t/cancel").step("t/do").build(),
        Pipeline("too-late").step("t/do").step("t/cancel").build(),
        Pipeline("elsewhere").step("t/do").step("t/cancel").step("t/do", group="other").build(),
        Pipeline("sleepless").step("t/do").step("t/sleep-cancelled").build(),
    )
    return notes


def test_a_queued_transaction_is_cancelled_at_once_also_without_a_worker(
    datp: Kit, diary: list[str]
) -> None:
    datp.lose_bells()
    tx_id = datp.submit("do", {})
    summary = datp.client.cancel(tx_id, "not needed any more")
    assert (summary.status, summary.note) == (Status.CANCELLED, "not needed any more")
    assert summary.completed_at is not None
    datp.lose_bells(False)
    datp.recover()
    assert diary == []
    assert datp.status(tx_id).status is Status.CANCELLED


def test_a_bell_that_comes_after_the_cancel_finds_the_door_shut(
    datp: Kit, diary: list[str]
) -> None:
    datp.lose_bells()
    tx_id = datp.submit("do", {})
    [(step_type, pairs)] = datp.send.rung
    datp.client.cancel(tx_id)
    assert datp.celery.tasks[f"datp.step.{step_type}"].apply_async(args=(pairs,)).get() == 0
    assert diary == []


def test_a_sleeping_transaction_is_woken_and_rolled_back(datp: Kit, diary: list[str]) -> None:
    tx_id = datp.submit("do-wait", {})
    assert datp.status(tx_id).status is Status.SLEEPING
    datp.client.cancel(tx_id, "enough")
    summary = datp.status(tx_id)
    assert (summary.status, summary.note) == (Status.CANCELLED, "enough")
    assert diary == ["do", "wait", "undo"]
    datp.advance(days=1)
    assert diary == ["do", "wait", "undo"]


def test_a_transaction_that_sleeps_in_its_first_step_is_cancelled_without_running_it_again(
    datp: Kit, diary: list[str]
) -> None:
    tx_id = datp.submit("wait", {})
    datp.client.cancel(tx_id)
    assert datp.status(tx_id).status is Status.CANCELLED
    assert diary == ["wait"]


def test_a_sleeping_transaction_is_cancelled_later_if_the_bell_is_lost(
    datp: Kit, diary: list[str]
) -> None:
    tx_id = datp.submit("do-wait", {})
    datp.lose_bells()
    assert datp.client.cancel(tx_id).status is Status.QUEUED
    datp.lose_bells(False)
    datp.recover()
    assert datp.status(tx_id).status is Status.CANCELLED
    assert diary == ["do", "wait", "undo"]


def test_a_cancel_between_two_steps_undoes_and_runs_no_further(datp: Kit, diary: list[str]) -> None:
    summary = datp.run("between", {})
    assert (summary.status, summary.note) == (Status.CANCELLED, "changed my mind")
    assert diary == ["do", "cancel", "undo"]


def test_a_cancel_before_the_next_step_in_another_group_undoes(datp: Kit, diary: list[str]) -> None:
    assert datp.run("elsewhere", {}).status is Status.CANCELLED
    assert diary == ["do", "cancel", "undo"]


def test_a_cancel_during_the_last_step_comes_too_late(datp: Kit, diary: list[str]) -> None:
    summary = datp.run("too-late", {})
    assert (summary.status, summary.note) == (Status.SUCCESS, None)
    assert diary == ["do", "cancel"]


def test_a_cancel_while_a_step_decides_to_sleep_is_not_missed(datp: Kit, diary: list[str]) -> None:
    @datp.step("t/sleep-cancelled")
    def sleep_cancelled(ctx: Any, data: Data) -> Sleep:
        datp.client.cancel(ctx.tx_id)
        return Sleep(seconds=86_400)

    # At once, and not only when it wakes up tomorrow.
    tx_id = datp.submit("sleepless", {})
    assert datp.status(tx_id).status is Status.CANCELLED
    assert diary == ["do", "undo"]


def test_a_cancel_during_a_rollback_does_not_change_how_it_ends(
    datp: Kit, diary: list[str]
) -> None:
    @datp.step("t/undo-cancels")
    def done(ctx: Any, data: Data) -> None: ...

    @done.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        datp.client.cancel(ctx.tx_id)

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no")

    datp.use(Pipeline("p").step("t/do").step("t/undo-cancels").step("t/fail").build())
    summary = datp.run("p", {})
    assert (summary.status, summary.note) == (Status.FAILED, "no")
    assert diary == ["do", "undo"]


def test_a_transaction_that_waits_for_another_try_is_cancelled_and_its_try_undone(
    datp: Kit,
) -> None:
    undone: list[Any] = []

    @datp.step("t/half", retry={"max_attempts": 5, "first_s": 60})
    def half(ctx: Any, data: Data) -> None:
        raise TimeoutError("no answer")

    @half.rollback(partial=True)
    def undo(ctx: Any, data: Data, output: Data | None) -> None:
        undone.append(output)

    datp.use(Pipeline("p").step("t/half").build())
    tx_id = datp.submit("p", {})
    datp.client.cancel(tx_id)
    assert datp.status(tx_id).status is Status.CANCELLED
    assert undone == [None]


def test_the_first_reason_stays(datp: Kit) -> None:
    @datp.step("t/cancel-twice")
    def cancel(ctx: Any, data: Data) -> None:
        datp.client.cancel(ctx.tx_id, "first")
        datp.client.cancel(ctx.tx_id, "second")

    datp.use(Pipeline("p").step("t/cancel-twice").step("t/cancel-twice").build())
    assert datp.run("p", {}).note == "first"


def test_a_reason_may_hold_anything(datp: Kit, diary: list[str]) -> None:
    datp.lose_bells()
    for reason in ("", "\x00\ud800", "x" * 100_000):
        tx_id = datp.submit("do", {})
        summary = datp.client.cancel(tx_id, reason)
        assert summary.status is Status.CANCELLED
        assert 0 < len(summary.note or "") <= 500


def test_what_has_ended_cannot_be_cancelled(datp: Kit, diary: list[str]) -> None:
    tx_id = datp.run("do", {}).tx_id
    with pytest.raises(TransactionFinal, match=f"{tx_id} has ended: success"):
        datp.client.cancel(tx_id)
    # Also when Redis has long forgotten it.
    datp.connections.redis.delete(datp.connections.live.keys.state(tx_id))
    for shard in datp.connections.live.shards:
        datp.connections.redis.delete(datp.connections.live.keys.in_shard(shard, "toArchiveZ"))
    with pytest.raises(TransactionFinal, match=f"{tx_id} has ended: success"):
        datp.client.cancel(tx_id)
    assert diary == ["do"]


@pytest.mark.parametrize("tx_id", ["", "nonsense", "t00-" + "0" * 32])
def test_what_never_was_cannot_be_cancelled(datp: Kit, tx_id: str) -> None:
    with pytest.raises(TransactionUnknown):
        datp.client.cancel(tx_id)


def test_a_client_that_dies_in_the_middle_of_a_cancel_leaves_nothing_behind(
    datp: Kit, diary: list[str]
) -> None:
    datp.lose_bells()
    tx_id = datp.submit("do", {})
    datp.crash_at("cancel.after_seize")
    with pytest.raises(SimulatedCrash):
        datp.client.cancel(tx_id, "not needed")
    assert datp.status(tx_id).status is Status.RUNNING
    datp.lose_bells(False)
    datp.recover()
    summary = datp.status(tx_id)
    assert (summary.status, summary.note) == (Status.CANCELLED, "not needed")
    assert diary == []
