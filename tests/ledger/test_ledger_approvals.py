"""A batch is resolved or sent again when two people agree: once, whatever dies meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from datp_tasks import failpoints
from datp_tasks.errors import ApprovalForbidden, ApprovalNeeded, SubjectMoved
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.jobs import approvals as approvals_job
from datp_tasks.ledger.sim.faults import Fault
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.approval import ApprovalState
from datp_tasks.model.ledger_batch import BatchState
from tests.ledger.conftest import NewWorld
from tests.support.ledger_world import SERVICE, Instance, World

ANN = Actor(name="key ann1", owner="ann", role=Role.OPERATOR)
ANN_AGAIN = Actor(name="key ann2", owner="ann", role=Role.ADMIN)
BOB = Actor(name="key bob1", owner="bob", role=Role.APPROVER)
CLEO = Actor(name="key cleo", owner="cleo", role=Role.APPROVER)


@pytest.fixture
def world(new_world: NewWorld) -> World:
    """The strict defaults: no policy was written."""
    made = new_world(kind="sawtooth", policy_file="")
    made.instance()
    made.instance()
    made.add_service()
    return made


@pytest.fixture(autouse=True)
def no_crash_is_left() -> Iterator[None]:
    yield
    failpoints.disarm_all()


def in_doubt(world: World) -> str:
    """A batch that the ledger may have, parked."""
    [one] = world.submit("one")
    world.sim.faults.set([Fault("post", "503-17", times=1)])
    first = world.instances[0]
    first.tick()
    first.deliver()
    assert world.state(one) is BatchState.UNKNOWN
    first.ledger.operator.park(SERVICE, one, actor=ANN, reason="look")
    return one


def asked(instance: Instance, action: str, batch: str, actor: Actor = ANN) -> int:
    operator = instance.ledger.operator
    why: dict[str, Any] = {"actor": actor, "reason": "the ledger says so"}
    to = () if action == "resubmit" else (BatchState.COMMITTED,)
    act: Any = getattr(operator, action)
    with pytest.raises(ApprovalNeeded, match="single-person") as needed:
        act(SERVICE, batch, *to, **why)
    return needed.value.approval_id


def done(world: World, action: str) -> int:
    [row] = world.sql(
        "SELECT count(*) AS number FROM operator_action WHERE action = :action",
        action=f"batch.{action}",
    )
    return int(row.number)


@pytest.mark.parametrize("action", ["resolve", "resubmit"])
def test_a_second_person_makes_it_happen_in_another_process(world: World, action: str) -> None:
    one = in_doubt(world)
    first, second = world.instances
    number = asked(first, action, one)
    assert (world.state(one), done(world, action)) == (BatchState.PARKED, 0)
    for who in (ANN, ANN_AGAIN):
        with pytest.raises(ApprovalForbidden):
            second.connections.approvals.approve(number, who)
    approved = second.connections.approvals.approve(number, BOB)
    assert approved.state is ApprovalState.EXECUTED
    assert done(world, action) == 1
    if action == "resolve":
        assert world.state(one) is BatchState.COMMITTED
    else:
        assert world.state(one) is BatchState.DELAYED
        first.tick()
        first.deliver()
        assert world.sim.posts == 2
    # The same word again changes nothing.
    assert first.connections.approvals.approve(number, BOB).state is ApprovalState.EXECUTED
    assert done(world, action) == 1


@pytest.mark.parametrize("action", ["resolve", "resubmit"])
@pytest.mark.parametrize("point", ["approval.after_commit", "approval.after_act"])
def test_a_process_that_dies_after_the_consent_leaves_it_done_once(
    world: World, action: str, point: str
) -> None:
    one = in_doubt(world)
    first, second = world.instances
    number = asked(first, action, one)
    failpoints.arm(point, "crash")
    with pytest.raises(SimulatedCrash):
        first.connections.approvals.approve(number, BOB)
    failpoints.disarm_all()
    store = second.connections.approvals.store
    assert store.one(number).state is ApprovalState.APPROVED
    for _ in range(2):
        approvals_job.run_once(second.connections.approvals, batch_max=10)
    assert (store.one(number).state, done(world, action)) == (ApprovalState.EXECUTED, 1)
    expected = BatchState.COMMITTED if action == "resolve" else BatchState.DELAYED
    assert world.state(one) is expected


def test_a_batch_that_moved_meanwhile_is_left_alone(world: World) -> None:
    one = in_doubt(world)
    first, second = world.instances
    number = asked(first, "resolve", one)
    first.ledger.operator.resume(SERVICE, one, actor=ANN, reason="asked the ledger")
    with pytest.raises(SubjectMoved):
        second.connections.approvals.approve(number, CLEO)
    assert second.connections.approvals.store.one(number).state is ApprovalState.STALE
    assert done(world, "resolve") == 0
