"""Four eyes: what needs another person waits for one, and is then done once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from datp_tasks import Pipeline, failpoints
from datp_tasks.errors import (
    ApprovalForbidden,
    ApprovalNeeded,
    ApprovalOver,
    DecisionInvalid,
    SubjectMoved,
    TransactionError,
)
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.approval import ApprovalState, Ask, Order
from datp_tasks.model.status import Status
from datp_tasks.operator.approvals import BREAK_GLASS
from datp_tasks.operator.selection import Where
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World

ANN = Actor(name="key ann1", owner="ann", role=Role.OPERATOR)
ANN_AGAIN = Actor(name="key ann2", owner="ann", role=Role.ADMIN)
BOB = Actor(name="key bob1", owner="bob", role=Role.APPROVER)
CARL = Actor(name="cli carl", role=Role.ADMIN)
DORA = Actor(name="key dora", owner="dora", role=Role.OPERATOR)
DORA_DECIDES = Actor(name="key dora2", owner="dora", role=Role.APPROVER)
LONG = {"seconds": 5_000}

POLICY = """
rules:
  - {action: pipeline.use, approvals: 0}
  - {action: bulk.*, above: 2, approvals: 1}
  - {action: resolve.fail, approvals: 2, from: [bob, carl, dora], expires: 1h}
"""


pytestmark = pytest.mark.kit(policy=POLICY)


@pytest.fixture
def in_doubt(datp: Kit, sound: World) -> str:
    tx_id = sound.crashed("pay", "hop.after_step", nth=2)
    datp.recover()
    assert sound.status(tx_id) == "in-doubt"
    return tx_id


def asked(kit: Kit, tx_id: str, decision: Any = "done", actor: Actor = ANN) -> int:
    output = {"paid": 7} if decision == "done" else None
    with pytest.raises(ApprovalNeeded) as needed:
        kit.operator.resolve(tx_id, decision, reason="bank says so", output=output, actor=actor)
    return needed.value.approval_id


def state(kit: Kit, number: int) -> ApprovalState:
    return kit.operator.approvals.store.one(number).state


def audit(world: World) -> list[tuple[str, str]]:
    rows = world.sql("SELECT actor, action FROM operator_action ORDER BY id")
    return [(row.actor, row.action) for row in rows if not row.action.startswith("pipeline.")]


def test_what_needs_another_person_is_done_when_that_one_agrees(
    datp: Kit, sound: World, in_doubt: str
) -> None:
    number = asked(datp, in_doubt)
    assert sound.status(in_doubt) == "in-doubt"
    done = datp.operator.approvals.approve(number, BOB, note="seen the statement")
    assert (done.state, done.consents) == (ApprovalState.EXECUTED, 1)
    summary = datp.finish(in_doubt)
    assert (summary.status, summary.output) == (Status.SUCCESS, {"paid": 7, "booked": 1})
    assert sound.times("pay", in_doubt) == 1
    assert audit(sound) == [
        *(("key ann1", "approval.ask"), ("key bob1", "approval.approve"), ("key bob1", "resolve")),
    ]
    [details] = sound.sql("SELECT details::text AS d FROM operator_action WHERE action = 'resolve'")
    assert '"requestedBy":"key ann1"' in details.d


def test_the_same_request_twice_is_one(datp: Kit, in_doubt: str) -> None:
    assert asked(datp, in_doubt) == asked(datp, in_doubt)


@pytest.mark.parametrize("who", [ANN, ANN_AGAIN])
def test_who_asked_may_not_decide_also_with_another_key(
    datp: Kit, in_doubt: str, who: Actor
) -> None:
    number = asked(datp, in_doubt)
    for decide in (datp.operator.approvals.approve, datp.operator.approvals.reject):
        with pytest.raises(ApprovalForbidden, match="another person"):
            decide(number, who, note="me")
    assert state(datp, number) is ApprovalState.PENDING


def test_the_database_refuses_the_requester_too(datp: Kit, sound: World, in_doubt: str) -> None:
    number = asked(datp, in_doubt)
    insert = (
        "INSERT INTO approval_decision (approval_id, requested_by, decided_by, actor, role, "
        "decision, note, created_at) "
        f"VALUES ({number}, '%s', 'ann', 'x', 'x', 'approve', '', now())"
    )
    with datp.connections.engine.connect() as connection:
        with pytest.raises(IntegrityError, match="approval_decision_by_another"):
            connection.exec_driver_sql(insert % "ann")
        connection.rollback()
        with pytest.raises(IntegrityError, match="approval_decision_of"):
            connection.exec_driver_sql(insert % "eve")


def test_it_takes_the_role_that_the_policy_names(datp: Kit, in_doubt: str) -> None:
    number = asked(datp, in_doubt)
    with pytest.raises(ApprovalForbidden, match="approver"):
        datp.operator.approvals.approve(number, DORA)
    with pytest.raises(ApprovalForbidden):
        datp.operator.approvals.approve(number, Actor(name="key c", owner="client"))


def test_two_of_three_named_persons(datp: Kit, sound: World, in_doubt: str) -> None:
    number = asked(datp, in_doubt, "fail")
    approvals = datp.operator.approvals
    with pytest.raises(ApprovalForbidden, match="only these"):
        approvals.approve(number, Actor(name="key e", owner="eve", role=Role.ADMIN))
    assert approvals.approve(number, BOB).state is ApprovalState.PENDING
    # The same person again does not count twice, with whatever key.
    assert approvals.approve(number, BOB).consents == 1
    with pytest.raises(ApprovalOver, match="before"):
        approvals.reject(number, BOB, note="changed my mind")
    assert sound.status(in_doubt) == "in-doubt"
    assert approvals.approve(number, CARL).state is ApprovalState.EXECUTED
    assert datp.finish(in_doubt).status is Status.FAILED
    with pytest.raises(ApprovalOver, match="executed"):
        approvals.approve(number, DORA_DECIDES)


def test_one_rejection_ends_it(datp: Kit, sound: World, in_doubt: str) -> None:
    number = asked(datp, in_doubt, "fail")
    datp.operator.approvals.approve(number, BOB)
    with pytest.raises(DecisionInvalid):
        datp.operator.approvals.reject(number, CARL, note=" ")
    datp.operator.approvals.reject(number, CARL, note="no")
    with pytest.raises(ApprovalOver, match="rejected"):
        datp.operator.approvals.approve(number, DORA_DECIDES)
    assert sound.status(in_doubt) == "in-doubt"


def test_a_request_expires(datp: Kit, sound: World, in_doubt: str) -> None:
    number = asked(datp, in_doubt, "fail")
    datp.clock.advance(seconds=3_601)
    assert state(datp, number) is ApprovalState.EXPIRED
    with pytest.raises(ApprovalOver, match="expired"):
        datp.operator.approvals.approve(number, BOB)
    assert asked(datp, in_doubt, "fail") != number
    assert sound.status(in_doubt) == "in-doubt"


def test_a_subject_that_moved_is_left_alone(datp: Kit, sound: World, in_doubt: str) -> None:
    number, other = asked(datp, in_doubt), asked(datp, in_doubt, "fail")
    datp.operator.approvals.approve(number, BOB)
    datp.finish(in_doubt)
    datp.operator.approvals.approve(other, BOB)
    with pytest.raises(SubjectMoved):
        datp.operator.approvals.approve(other, CARL)
    assert state(datp, other) is ApprovalState.STALE
    assert datp.status(in_doubt).status is Status.SUCCESS


@pytest.mark.parametrize("is_decided", [False, True])
def test_people_agree_to_nothing_but_what_was_asked_for(
    datp: Kit, sound: World, in_doubt: str, is_decided: bool
) -> None:
    number = asked(datp, in_doubt)
    approvals = datp.operator.approvals
    if is_decided:
        failpoints.arm("approval.after_commit", "crash")
        with pytest.raises(SimulatedCrash):
            approvals.approve(number, BOB)
    sound.sql("""UPDATE approval SET params = '{"decision": "resolve.done", "output": null}'""")
    if is_decided:
        assert approvals.carry_out_undone(CARL, batch_max=5) == 1
    else:
        with pytest.raises(SubjectMoved, match="not what was asked for"):
            approvals.approve(number, BOB)
    assert state(datp, number) is ApprovalState.STALE
    assert sound.times("pay", in_doubt) == 1 and not datp.status(in_doubt).is_final


def test_people_agree_to_an_action_its_subject_version_and_number_of_persons(
    datp: Kit, sound: World, in_doubt: str
) -> None:
    """Parameters alone do not say what is done to what."""
    approvals = datp.operator.approvals
    changes = (
        "action = 'resolve.redo-effect'",
        "subject = subject || 'x'",
        "version = version || 'x'",
        "needed = 1",
        "role = 'operator'",
        "persons = '[\"key bob\"]'",
        "params_hash = repeat('0', 64)",
    )
    for change in changes:
        number = asked(datp, in_doubt, "fail")
        approvals.approve(number, BOB)
        sound.sql(f"UPDATE approval SET {change} WHERE id = :id", id=number)
        store = approvals.store
        with datp.connections.engine.connect() as connection:
            assert not store.is_as_asked(connection, store.one(number)), change
        over = "UPDATE approval SET state = 'stale', decided_at = now() WHERE id = :id"
        sound.sql(over, id=number)
    number = asked(datp, in_doubt, "fail")
    sound.sql("UPDATE approval SET version = version || 'x', needed = 1 WHERE id = :id", id=number)
    with pytest.raises(SubjectMoved, match="not what was asked for"):
        approvals.approve(number, BOB)
    assert sound.status(in_doubt) == "in-doubt"


def test_a_decision_that_is_not_known_is_not_a_failure(datp: Kit) -> None:
    params = {"decision": "resolve.done", "output": None}
    order = Order(
        action="resolve.done", subject="t1-x", params=params, version="", reason="", actor=BOB
    )
    action = datp.operator.approvals._actions["resolve.done"]
    with pytest.raises(TransactionError, match="is not a decision"):
        action.carry_out(order, None)
    refused = pytest.raises(TransactionError, match="is not a decision")
    with datp.connections.engine.connect() as connection, refused:
        action.decide(connection, order)


def test_one_in_doubt_again_is_another_version(datp: Kit, sound: World, in_doubt: str) -> None:
    done = asked(datp, in_doubt)
    redo = asked(datp, in_doubt, "redo")
    failpoints.arm("hop.after_step", "crash")
    datp.operator.approvals.approve(redo, BOB)
    datp.recover()
    assert sound.status(in_doubt) == "in-doubt"
    with pytest.raises(SubjectMoved, match="changed meanwhile"):
        datp.operator.approvals.approve(done, BOB)
    assert sound.status(in_doubt) == "in-doubt"
    assert sound.times("pay", in_doubt) == 2


@pytest.mark.parametrize("next_is", ["job", "approver"])
@pytest.mark.parametrize(
    "point", ["approval.after_commit", "resolve.after_sql", "approval.after_act"]
)
def test_a_crash_after_the_approval_is_picked_up_and_done_once(
    datp: Kit, sound: World, in_doubt: str, point: str, next_is: str
) -> None:
    number = asked(datp, in_doubt)
    failpoints.arm(point, "crash")
    with pytest.raises(SimulatedCrash):
        datp.operator.approvals.approve(number, BOB)
    failpoints.disarm_all()
    assert state(datp, number) is ApprovalState.APPROVED
    for _ in range(2):
        if next_is == "job":
            datp.run_job("approvals")
        else:
            datp.operator.approvals.approve(number, BOB)
    assert state(datp, number) is ApprovalState.EXECUTED
    assert sound.ends(in_doubt) is Status.SUCCESS
    assert datp.status(in_doubt).output == {"paid": 7, "booked": 1}
    assert sound.times("pay", in_doubt) == 1
    assert [action for _, action in audit(sound)].count("resolve") == 1


def test_of_two_approvers_at_once_one_executes(datp: Kit, sound: World, in_doubt: str) -> None:
    number = asked(datp, in_doubt)
    other = datp.another()
    seen: list[ApprovalState] = []

    def meanwhile() -> None:
        seen.append(other.operator.approvals.approve(number, BOB).state)

    sound.at("approval.after_commit", meanwhile)
    done = datp.operator.approvals.approve(number, BOB)
    assert (done.state, seen) == (ApprovalState.EXECUTED, [ApprovalState.EXECUTED])
    assert sound.ends(in_doubt) is Status.SUCCESS
    # Before and after the payment.
    assert sound.times("book", in_doubt) == 2
    assert [action for _, action in audit(sound)].count("resolve") == 1
    other.close()


def test_of_two_requests_approved_at_once_one_is_done(
    datp: Kit, sound: World, in_doubt: str
) -> None:
    done, redo = asked(datp, in_doubt), asked(datp, in_doubt, "redo")
    other = datp.another()

    def meanwhile() -> None:
        with pytest.raises(SubjectMoved, match="being carried out"):
            other.operator.approvals.approve(redo, BOB)

    sound.at("approval.after_commit", meanwhile)
    datp.operator.approvals.approve(done, BOB)
    assert state(datp, redo) is ApprovalState.STALE
    assert sound.ends(in_doubt) is Status.SUCCESS
    assert sound.times("pay", in_doubt) == 1
    other.close()


# Breaking the glass.


def test_one_person_can_act_alone_and_an_alert_stays(
    datp: Kit, sound: World, in_doubt: str
) -> None:
    datp.operator.resolve(
        in_doubt, "done", reason="the bank closes", output={}, actor=ANN, break_glass=True
    )
    assert datp.finish(in_doubt).status is Status.SUCCESS
    alerts = Alerts(datp.connections.engine, datp.clock)
    for _ in range(3):
        datp.advance(days=2)
    [alert] = alerts.open_alerts(BREAK_GLASS)
    assert "key ann1 did resolve.done" in alert.summary
    clear = datp.operator.approvals.clear_alert
    for actor in (ANN, ANN_AGAIN):
        with pytest.raises(ApprovalForbidden):
            clear(actor, alert.kind, alert.subject, reason="fine")
    with pytest.raises(DecisionInvalid):
        clear(BOB, alert.kind, alert.subject, reason=" ")
    assert alerts.open_alerts(BREAK_GLASS) == [alert]
    assert clear(BOB, alert.kind, alert.subject, reason="was right")
    assert alerts.open_alerts(BREAK_GLASS) == []
    assert audit(sound)[-1] == ("key bob1", "clear-alert")


def test_a_crash_after_breaking_the_glass_leaves_the_alert_and_is_picked_up(
    datp: Kit, sound: World, in_doubt: str
) -> None:
    failpoints.arm("approval.after_commit", "crash")
    with pytest.raises(SimulatedCrash):
        datp.operator.resolve(in_doubt, "done", reason="now", actor=ANN, break_glass=True)
    failpoints.disarm_all()
    assert Alerts(datp.connections.engine, datp.clock).open_alerts(BREAK_GLASS)
    datp.run_job("approvals")
    assert sound.ends(in_doubt) is Status.SUCCESS


# Other actions.


def test_a_version_is_put_into_use_in_the_commit_that_approves(
    datp_servers: Servers,
) -> None:
    kit = Kit(datp_servers, policy_file="")
    store = kit.connections.pipelines.acting(ANN)
    first = Pipeline("p").step("util/fixed-reply", params={"output": {"a": 1}}).build()
    second = Pipeline("p").step("util/fixed-reply", params={"output": {"a": 2}}).build()
    numbers = []
    for definition in (first, second):
        store.apply(definition)
        with pytest.raises(ApprovalNeeded) as needed:
            store.use("p", definition.version)
        numbers.append(needed.value.approval_id)
    assert store.list()[0].version_in_use is None
    kit.operator.approvals.approve(numbers[0], BOB)
    assert store.list()[0].version_in_use == first.version
    # The other was asked for when none was in use.
    with pytest.raises(SubjectMoved):
        kit.operator.approvals.approve(numbers[1], BOB)
    assert store.list()[0].version_in_use == first.version
    store.use("p", second.version, reason="on fire", break_glass=True)
    assert kit.run("p", {}).output == {"a": 2}
    # What is in use already needs no second person; what was disabled does.
    assert store.use("p", second.version).version == second.version
    store.disable("p")
    with pytest.raises(ApprovalNeeded):
        store.use("p", second.version)
    kit.close()


def test_an_action_that_its_caller_does_is_allowed_once(datp: Kit) -> None:
    approvals, engine = datp.operator.approvals, datp.connections.engine
    ask = Ask(action="erase", subject="acme", params={"a": 1}, version="1", reason="asked for")
    with pytest.raises(ApprovalNeeded) as needed, engine.begin() as connection:
        approvals.require(ANN, ask, connection=connection)
    assert approvals.approve(needed.value.approval_id, BOB).state is ApprovalState.APPROVED
    with engine.connect() as connection:
        assert approvals.require(ANN, ask, connection=connection)
        # The caller could not do it after all.
        connection.rollback()
    with engine.begin() as connection:
        used = approvals.require(ANN, ask, connection=connection)
    assert used is not None
    assert used.state is ApprovalState.EXECUTED
    with pytest.raises(ApprovalNeeded), engine.begin() as connection:
        approvals.require(ANN, ask, connection=connection)


# Many at once.


def sleepers(kit: Kit, count: int) -> list[str]:
    kit.use(
        Pipeline("rest").step("util/delay", params=LONG).step("util/delay", params=LONG).build()
    )
    return [kit.submit("rest", {}) for _ in range(count)]


def wake(kit: Kit, ids: list[str], **more: Any) -> list[Any]:
    where = Where(pipeline="rest")
    found = kit.operator.act_on_many("wake", where, ids, reason="now", actor=ANN, **more)
    return list(found)


def sleeps(kit: Kit, tx_id: str) -> int:
    return sum(entry.kind == "sleep" for entry in kit.operator.deltas(tx_id))


def test_a_small_bulk_action_needs_no_other_person(datp: Kit) -> None:
    assert [each.ok for each in wake(datp, sleepers(datp, 2))] == [True, True]


@pytest.mark.parametrize("point", ["approval.after_commit", "bulk.after_take", "bulk.after_act"])
def test_a_large_bulk_action_is_done_once_to_each_whatever_crashes(datp: Kit, point: str) -> None:
    ids = sleepers(datp, 3)
    with pytest.raises(ApprovalNeeded) as needed:
        wake(datp, ids)
    assert [sleeps(datp, each) for each in ids] == [1, 1, 1]
    failpoints.arm(point, "crash", nth=1 if "commit" in point else 2)
    with pytest.raises(SimulatedCrash):
        datp.operator.approvals.approve(needed.value.approval_id, BOB)
    failpoints.disarm_all()
    datp.run_job("approvals")
    assert [sleeps(datp, each) for each in ids] == [2, 2, 2]
    found = datp.operator.approvals.store.one(needed.value.approval_id)
    assert (found.state, found.note) == (ApprovalState.EXECUTED, "3 of 3 done")


@pytest.mark.parametrize("point", ["bulk.after_take", "bulk.after_act"])
def test_a_cancel_that_was_lost_is_asked_again_of_one_that_has_moved_by_itself(
    datp: Kit, point: str
) -> None:
    """That it has moved says nothing about a cancel: its sleep may have ended."""
    ids = sleepers(datp, 3)
    act = dict(reason="now", actor=ANN)
    with pytest.raises(ApprovalNeeded) as needed:
        datp.operator.act_on_many("cancel", Where(pipeline="rest"), ids, **act)  # type: ignore[arg-type]
    failpoints.arm(point, "crash", nth=2)
    with pytest.raises(SimulatedCrash):
        datp.operator.approvals.approve(needed.value.approval_id, BOB)
    failpoints.disarm_all()
    for each in ids:
        if not datp.status(each).is_final:
            datp.client.wake(each)
    datp.run_job("approvals")
    assert {datp.status(each).status for each in ids} == {Status.CANCELLED}
    found = datp.operator.approvals.store.one(needed.value.approval_id)
    assert (found.state, found.note) == (ApprovalState.EXECUTED, "3 of 3 done")


def test_a_transaction_that_is_gone_does_not_hold_up_a_cancel_of_many(datp: Kit) -> None:
    ids = sleepers(datp, 3)
    act = dict(reason="now", actor=ANN)
    with pytest.raises(ApprovalNeeded) as needed:
        datp.operator.act_on_many("cancel", Where(pipeline="rest"), ids, **act)  # type: ignore[arg-type]
    number = needed.value.approval_id
    failpoints.arm("bulk.after_take", "crash")
    with pytest.raises(SimulatedCrash):
        datp.operator.approvals.approve(number, BOB)
    failpoints.disarm_all()
    gone = next(
        each.tx_id for each in datp.operator.approvals.store.items(number, 9) if each.is_taken
    )
    keys = datp.connections.live.keys
    datp.connections.redis.delete(keys.state(gone), keys.deltas(gone))
    for name in ("sleepingZ", "toArchiveZ"):
        datp.connections.redis.zrem(keys.of_tx(gone, name), gone)
    with datp.connections.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM tx_summary WHERE tx_id = %s", (gone,))
    datp.run_job("approvals")
    found = datp.operator.approvals.store.one(number)
    assert (found.state, found.note) == (ApprovalState.EXECUTED, "2 of 3 done")


# Ways round.


def test_an_old_request_does_not_stand_in_the_way_of_breaking_the_glass(
    datp: Kit, sound: World, in_doubt: str
) -> None:
    old = asked(datp, in_doubt)
    redo = asked(datp, in_doubt, "redo")
    failpoints.arm("hop.after_step", "crash")
    datp.operator.approvals.approve(redo, BOB)
    datp.recover()
    assert sound.status(in_doubt) == "in-doubt"
    output = {"paid": 7}
    act = dict(reason="bank says so", output=output, actor=ANN)
    datp.operator.resolve(in_doubt, "done", break_glass=True, **act)  # type: ignore[arg-type]
    assert state(datp, old) is ApprovalState.STALE
    assert datp.finish(in_doubt).status is Status.SUCCESS


def test_a_glass_is_closed_only_with_its_alert(datp: Kit, in_doubt: str) -> None:
    datp.operator.resolve(in_doubt, "done", reason="now", actor=ANN, break_glass=True)
    approvals = datp.operator.approvals
    [broken] = approvals.store.page(rows_max=1)
    for subject in (f"approval 0{broken.id}", f"approval {2**70}", "approval x"):
        assert not approvals.clear_alert(BOB, BREAK_GLASS, subject, reason="seen")
    assert approvals.store.one(broken.id).closed_by is None


SHARP = """
rules:
  - {action: pipeline.use, approvals: 0}
  - {action: resolve.redo-effect, approvals: 2}
  - {action: bulk.*, pipeline: pay, approvals: 1}
"""


@pytest.fixture
def sharp(datp_servers: Servers, tmp_path: Path) -> Iterator[World]:
    file = tmp_path / "sharp.yaml"
    file.write_text(SHARP)
    kit = Kit(datp_servers, policy_file=str(file))
    yield World(kit)
    kit.close()


@pytest.mark.parametrize("where", [Where(owner="local"), Where(pipeline="rest"), Where()])
def test_a_rule_for_a_pipeline_is_not_evaded_by_another_filter(sharp: World, where: Where) -> None:
    tx_id = sharp.queued("pay")
    act = sharp.kit.operator.act_on_many
    with pytest.raises(ApprovalNeeded):
        act("cancel", where, [tx_id], reason="now", actor=ANN)
    other = sharp.queued("rest")
    # Nor by choosing others beside it.
    with pytest.raises(ApprovalNeeded):
        act("cancel", where, [other, tx_id], reason="now", actor=ANN)
    assert [each.ok for each in act("cancel", where, [other], reason="now", actor=ANN)] == [True]


def test_one_approval_of_many_does_not_stand_for_the_two_that_a_step_needs(sharp: World) -> None:
    tx_id = sharp.crashed("pay", "hop.after_step", nth=2)
    kit = sharp.kit
    kit.recover()
    with pytest.raises(ApprovalNeeded) as needed:
        kit.operator.act_on_many("retry", Where(pipeline="pay"), [tx_id], reason="x", actor=ANN)
    done = kit.operator.approvals.approve(needed.value.approval_id, BOB)
    assert (done.state, done.note) == (ApprovalState.EXECUTED, "0 of 1 done")
    assert sharp.status(tx_id) == "in-doubt"
    assert sharp.times("pay", tx_id) == 1


def test_a_bulk_that_an_older_release_asked_for_can_still_be_approved(datp: Kit) -> None:
    """Its hash is of its transactions in an order that was not stored."""
    ids = sleepers(datp, 3)
    with pytest.raises(ApprovalNeeded) as needed:
        wake(datp, ids)
    number = needed.value.approval_id
    with datp.connections.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE approval SET params_hash = repeat('0', 64), asked_hash = NULL"
        )
        connection.exec_driver_sql("DELETE FROM approval_item WHERE tx_id = %s", (ids[0],))
    store = datp.operator.approvals.store
    with datp.connections.engine.connect() as connection:
        assert not store.is_as_asked(connection, store.one(number))
        connection.exec_driver_sql("INSERT INTO approval_item VALUES (%s, %s)", (number, ids[0]))
        assert store.is_as_asked(connection, store.one(number))
