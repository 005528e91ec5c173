"""What is in doubt: doctor tells what is wrong, resolve decides, the audit table keeps why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from datp_tasks import DontKnow, Fail, Operator, Pipeline, failpoints
from datp_tasks.errors import (
    DecisionInvalid,
    TransactionError,
    TransactionFinal,
    TransactionUnknown,
)
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.actor import Actor
from datp_tasks.model.status import Status
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit
from tests.support.archive_world import Data, World

UNKNOWN = "t00-" + "0" * 32


@pytest.fixture
def in_doubt(datp: Kit, sound: World) -> str:
    """Its worker was lost in the middle of t/pay."""
    tx_id = sound.crashed("pay", "hop.after_step", nth=2)
    datp.recover()
    assert sound.status(tx_id) == "in-doubt"
    return tx_id


def actions(world: World) -> list[Any]:
    """By whom, about what, why, and what was decided."""
    return [
        (row.actor, row.subject, row.reason, json.loads(row.details))
        for row in world.sql(
            "SELECT actor, subject, reason, details::text AS details FROM operator_action "
            "WHERE action = 'resolve' ORDER BY id"
        )
    ]


# Doctor.


def test_a_healthy_system_is_called_healthy(datp: Kit, sound: World) -> None:
    assert datp.operator.doctor().is_healthy
    datp.submit("quick", {})
    datp.submit("rest", {})
    sound.queued("quick")
    diagnosis = datp.operator.doctor()
    assert diagnosis.is_healthy
    assert (diagnosis.in_flight, diagnosis.in_doubt, diagnosis.violations) == ([], [], [])
    assert diagnosis.sizes["sleepingZ"] == diagnosis.sizes["queuedZ"] == 1
    assert diagnosis.journal_backlog > 0
    sound.archive()
    assert datp.operator.doctor().journal_backlog == 0
    datp.recover()


def test_what_a_living_worker_does_is_in_flight_and_fine(datp: Kit, sound: World) -> None:
    seen: list[Any] = []
    sound.after_effect = lambda: seen.append(datp.operator.doctor())
    tx_id = datp.submit("pay", {})
    [diagnosis] = seen
    [flying] = diagnosis.in_flight
    assert (flying.tx_id, flying.place, flying.step_type) == (tx_id, "pay/1", "t/pay")
    assert flying.mid_step
    assert not flying.orphaned
    assert diagnosis.is_healthy


@pytest.mark.parametrize(("point", "mid_step"), [("hop.after_claim", True), ("none", False)])
def test_what_a_dead_node_had_is_named_with_where_it_stood(
    datp: Kit, sound: World, point: str, mid_step: bool
) -> None:
    if point == "none":
        # Claimed for a step that is marked by itself, and lost before that.
        datp.use(Pipeline("first").step("t/pay").build())
        tx_id = sound.crashed("first", "hop.after_claim")
    else:
        tx_id = sound.crashed("quick", point)
    # Right after the crash nobody can tell a dead node from a busy one.
    assert not datp.operator.doctor().in_flight[0].orphaned
    datp.clock.advance(seconds=datp.settings.node_stale_ms / 1_000 + 1)
    datp.process.heartbeat.beat_once()
    diagnosis = datp.operator.doctor()
    [flying] = diagnosis.in_flight
    assert (flying.tx_id, flying.orphaned, flying.mid_step) == (tx_id, True, mid_step)
    assert diagnosis.orphaned == [flying]
    assert not diagnosis.is_healthy
    datp.recover()
    assert datp.operator.doctor().is_healthy


def test_what_is_in_doubt_is_named_with_its_reason(datp: Kit, in_doubt: str) -> None:
    diagnosis = datp.operator.doctor()
    [parked] = diagnosis.in_doubt
    assert (parked.tx_id, parked.place, parked.step_type) == (in_doubt, "pay/1", "t/pay")
    assert "a worker was lost in the middle of step 2 of pay (t/pay)" in parked.why
    assert not diagnosis.is_healthy


def test_lists_that_do_not_fit_are_named(datp: Kit, world: World) -> None:
    tx_id = datp.submit("rest", {})
    live = datp.connections.live
    live.redis.zadd(live.keys.of_tx(tx_id, "queuedZ"), {tx_id: 1})
    diagnosis = datp.operator.doctor()
    assert [each.tx_id for each in diagnosis.violations] == [tx_id]
    assert not diagnosis.is_healthy
    live.redis.zrem(live.keys.of_tx(tx_id, "queuedZ"), tx_id)


def test_open_alerts_are_counted(datp: Kit, sound: World) -> None:
    Alerts(datp.connections.engine, datp.clock).raise_alert("x", "y", "z")
    diagnosis = datp.operator.doctor()
    assert (diagnosis.open_alerts, diagnosis.is_healthy) == (1, False)


# Resolve.


def test_an_operator_of_another_process_is_opened_by_its_settings(datp: Kit, in_doubt: str) -> None:
    with Operator.from_settings(datp.settings) as operator:
        assert [each.tx_id for each in operator.in_doubt()] == [in_doubt]
        assert operator.replay(in_doubt).faults == []


def test_done_goes_on_with_the_output_that_was_given(
    datp: Kit, sound: World, in_doubt: str
) -> None:
    datp.operator.resolve(
        in_doubt, "done", reason="bank says so", output={"paid": 7}, actor=Actor(name="ann")
    )
    summary = datp.finish(in_doubt)
    assert (summary.status, summary.output) == (Status.SUCCESS, {"paid": 7, "booked": 1})
    assert sound.times("pay", in_doubt) == 1
    details = {"decision": "done", "step": "pay/1", "type": "t/pay", "output": {"paid": 7}}
    assert actions(sound) == [("ann", in_doubt, "bank says so", details)]
    assert datp.operator.doctor().is_healthy


def test_done_without_an_output_passes_the_input_on(datp: Kit, sound: World, in_doubt: str) -> None:
    datp.operator.resolve(in_doubt, "done", reason="it is booked")
    assert datp.finish(in_doubt).output == {"booked": 2}
    assert sound.times("pay", in_doubt) == 1


def test_redo_runs_the_step_again(datp: Kit, sound: World, in_doubt: str) -> None:
    datp.operator.resolve(in_doubt, "redo", reason="nothing happened there")
    assert datp.finish(in_doubt).output == {"booked": 2, "paid": True}
    assert sound.times("pay", in_doubt) == 2


def test_fail_rolls_back_what_was_done_before(datp: Kit, sound: World, in_doubt: str) -> None:
    datp.operator.resolve(in_doubt, "fail", reason="refused", output={"code": 4})
    summary = datp.finish(in_doubt)
    assert (summary.status, summary.note, summary.output) == (
        *(Status.FAILED, "refused", {"code": 4}),
    )
    assert sound.times("unbook", in_doubt) == 1
    assert not [each for each in sound.did if each[0] == "unpay"]


def test_a_step_that_was_resolved_as_done_is_rolled_back_when_a_later_one_fails(
    datp: Kit, sound: World
) -> None:
    datp.use(Pipeline("p").step("t/book").step("t/pay").step("t/fail").build())
    tx_id = sound.crashed("p", "hop.after_step", nth=2)
    datp.recover()
    datp.operator.resolve(tx_id, "done", reason="seen", output={"receipt": 5})
    assert datp.finish(tx_id).status is Status.FAILED
    assert sound.did[-2:] == [("unpay", f"{tx_id} {{'receipt': 5}}"), ("unbook", tx_id)]


def test_a_step_that_is_in_doubt_again_can_be_decided_again(
    datp: Kit, sound: World, in_doubt: str
) -> None:
    failpoints.arm("hop.after_step", "crash")
    datp.operator.resolve(in_doubt, "redo", reason="once more")
    datp.recover()
    assert sound.status(in_doubt) == "in-doubt"
    datp.operator.resolve(in_doubt, "done", reason="now it is", output={})
    assert datp.finish(in_doubt).status is Status.SUCCESS
    assert sound.times("pay", in_doubt) == 2
    assert [each[3]["decision"] for each in actions(sound)] == ["redo", "done"]


def test_a_probe_that_does_not_know_is_decided_by_a_person(datp: Kit, sound: World) -> None:
    sound.answer = DontKnow("the bank is closed")
    tx_id = sound.crashed("ask", "hop.after_step", nth=2)
    datp.recover()
    assert "the bank is closed" in datp.operator.doctor().in_doubt[0].why
    datp.operator.resolve(tx_id, "redo", reason="the bank has opened: nothing there")
    assert datp.finish(tx_id).status is Status.SUCCESS
    assert sound.times("ask", tx_id) == 2


@pytest.fixture
def undo_in_doubt(datp: Kit, sound: World) -> str:
    """Rolling back, and the rollback of its second step cannot be done."""
    broken = [True]

    @datp.step("t/sticky", retry={"max_attempts": 1})
    def sticky(ctx: Any, data: Data) -> Data:
        return {**data, "stuck": True}

    @sticky.rollback
    def unstick(ctx: Any, data: Data, output: Data | None) -> None:
        sound.did.append(("unstick", ctx.tx_id))
        if broken.pop() if broken else False:
            raise RuntimeError("it sticks")

    @datp.step("t/no")
    def refuse(ctx: Any, data: Data) -> None:
        raise Fail("no", {"why": "not"})

    datp.use(Pipeline("s").step("t/book").step("t/sticky").step("t/no").build())
    tx_id = datp.submit("s", {})
    assert sound.status(tx_id) == "in-doubt"
    assert "cannot be rolled back" in sound.fields(tx_id)["problem"]
    return tx_id


@pytest.mark.parametrize(
    ("decision", "status", "unsticks", "unbooks"),
    [
        ("done", Status.FAILED, 1, 1),
        ("redo", Status.FAILED, 2, 1),
        ("fail", Status.INTERNAL_ERROR, 1, 0),
    ],
)
def test_a_rollback_in_doubt_can_be_decided(
    datp: Kit,
    sound: World,
    undo_in_doubt: str,
    decision: Any,
    status: Status,
    unsticks: int,
    unbooks: int,
) -> None:
    datp.operator.resolve(undo_in_doubt, decision, reason="asked the vendor")
    summary = datp.finish(undo_in_doubt)
    assert summary.status is status
    assert sound.times("unstick", undo_in_doubt) == unsticks
    assert sound.times("unbook", undo_in_doubt) == unbooks
    if decision == "fail":
        assert "not rolled back: asked the vendor" in (summary.note or "")


def test_a_decision_survives_the_loss_of_redis(datp: Kit, sound: World, in_doubt: str) -> None:
    datp.lose_bells()
    datp.operator.resolve(in_doubt, "done", reason="seen", output={"paid": 7})
    sound.archive()
    datp.clock.advance(seconds=1)
    sound.wipe()
    datp.lose_bells(False)
    assert sound.ends(in_doubt) is Status.SUCCESS
    assert datp.status(in_doubt).output == {"paid": 7, "booked": 1}
    assert sound.times("pay", in_doubt) == 1


def test_a_decision_that_was_cut_off_can_be_made_again(
    datp: Kit, sound: World, in_doubt: str
) -> None:
    failpoints.arm("resolve.after_sql", "crash")
    with pytest.raises(SimulatedCrash):
        datp.operator.resolve(in_doubt, "done", reason="seen", output={"paid": 7})
    assert sound.status(in_doubt) == "in-doubt"
    datp.recover()
    assert sound.status(in_doubt) == "in-doubt"
    datp.operator.resolve(in_doubt, "done", reason="seen", output={"paid": 8})
    assert datp.finish(in_doubt).output == {"paid": 8, "booked": 1}
    assert sound.times("pay", in_doubt) == 1


def test_of_two_that_decide_at_once_one_is_told_so(datp: Kit, sound: World, in_doubt: str) -> None:
    other = datp.another()
    sound.at(
        "resolve.after_sql",
        lambda: other.operator.resolve(in_doubt, "done", reason="first", output={"paid": 1}),
    )
    with pytest.raises(TransactionError):
        datp.operator.resolve(in_doubt, "redo", reason="second")
    assert sound.ends(in_doubt) is Status.SUCCESS
    assert datp.status(in_doubt).output == {"paid": 1, "booked": 1}
    assert sound.times("pay", in_doubt) == 1
    other.close()


# What is refused.


@pytest.mark.parametrize(
    ("decision", "options", "message"),
    [
        ("done", {"reason": " "}, "a decision needs a reason"),
        ("maybe", {"reason": "x"}, "decide done, redo or fail"),
        ("redo", {"reason": "x", "output": {"a": 1}}, "makes its own output"),
        ("done", {"reason": "x", "output": {"a": object()}}, "output"),
        ("done", {"reason": "x", "output": {"a": "x" * 300_000}}, "output"),
        ("done", {"reason": "x", "output": [1]}, "output"),
    ],
)
def test_what_is_no_decision_is_refused_and_changes_nothing(
    datp: Kit, sound: World, in_doubt: str, decision: Any, options: Any, message: str
) -> None:
    before = sound.fields(in_doubt)
    with pytest.raises(DecisionInvalid, match=message):
        datp.operator.resolve(in_doubt, decision, **options)
    assert sound.fields(in_doubt) == before
    assert actions(sound) == []


def test_only_what_is_in_doubt_can_be_resolved(datp: Kit, sound: World) -> None:
    with pytest.raises(TransactionUnknown):
        datp.operator.resolve(UNKNOWN, "done", reason="x")
    with pytest.raises(TransactionUnknown):
        datp.operator.resolve("nonsense", "done", reason="x")
    ended = datp.submit("quick", {})
    with pytest.raises(TransactionFinal, match="has ended: success"):
        datp.operator.resolve(ended, "done", reason="x")
    asleep = datp.submit("rest", {})
    with pytest.raises(TransactionError, match="not in doubt; it is sleeping"):
        datp.operator.resolve(asleep, "done", reason="x")
    assert actions(sound) == []
    with pytest.raises(TransactionUnknown):
        datp.operator.replay(UNKNOWN)


def test_two_decisions_of_one_millisecond_have_fences_of_their_own(
    datp: Kit, in_doubt: str
) -> None:
    """The journal tells by the fence whose decision was carried out."""
    record = datp.connections.record
    [row] = record.summaries([in_doubt])
    with record.engine.begin() as sql:
        fences = [record.fence_of_decision(in_doubt, row.fence, sql) for _ in range(3)]
    assert fences == [row.fence + 1, row.fence + 2, None], "a newer claim is left alone"
