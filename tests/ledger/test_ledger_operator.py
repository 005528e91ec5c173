"""What operators can do: each act with a reason, in the audit, and only where it makes sense."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from datp_tasks.errors import BatchBusy, BatchUnknown, LedgerError
from datp_tasks.ledger.batch_types import AttemptEnd, Move
from datp_tasks.ledger.sim.faults import Fault
from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import BatchState, Verdict
from tests.ledger.conftest import NewWorld
from tests.support.ledger_world import SERVICE, Instance, World

WHO: dict[str, Any] = {"actor": Actor(name="ann"), "reason": "because"}


@pytest.fixture
def instance(world: World) -> Instance:
    made = world.instance()
    world.add_service()
    return made


def audit(world: World) -> list[tuple[str, ...]]:
    rows = world.sql("SELECT actor, action, reason, details FROM operator_action ORDER BY id")
    found: list[tuple[str, ...]] = []
    for row in rows:
        details = row.details if isinstance(row.details, dict) else json.loads(row.details)
        found.append((row.actor, row.action, row.reason, details["from"], details["to"]))
    return found


def test_a_parked_batch_stays_and_so_do_those_behind_it(world: World, instance: Instance) -> None:
    one, two = world.submit("one", "two")
    operator = instance.ledger.operator
    assert operator.park(SERVICE, one, **WHO) is BatchState.PARKED
    world.settle(instance, rounds=5)
    assert world.sim.posts == 0
    assert operator.resume(SERVICE, one, **WHO) is BatchState.NEW
    world.settle(instance, rounds=5)
    assert world.violations() == []
    assert world.state(two) is BatchState.COMMITTED
    assert audit(world) == [
        ("ann", "batch.park", "because", "NEW", "PARKED"),
        ("ann", "batch.resume", "because", "PARKED", "NEW"),
    ]


def test_one_in_the_middle_of_the_line_can_be_parked_ahead_of_time(
    world: World, instance: Instance
) -> None:
    one, two, three = world.submit("one", "two", "three")
    world.sim.options.commit_ms = 1e9
    instance.tick()
    instance.deliver()
    assert world.state(one) is BatchState.PENDING
    operator = instance.ledger.operator
    operator.park(SERVICE, two, **WHO)
    world.sim.options.commit_ms = 0
    world.sim._scabbard[SERVICE]._queue = [
        (0.0, batch, content) for _, batch, content in world.sim._scabbard[SERVICE]._queue
    ]
    world.settle(instance, rounds=5)
    assert [world.state(each) for each in (one, two, three)] == ["COMMITTED", "PARKED", "NEW"]
    # It was never sent, so it goes back into the line, and not to the front of it.
    assert operator.resubmit(SERVICE, two, **WHO) is BatchState.NEW
    world.settle(instance, rounds=5)
    assert world.violations() == []


def test_a_batch_that_may_have_arrived_is_asked_about_when_it_is_resumed(
    world: World, instance: Instance
) -> None:
    [one] = world.submit("one")
    world.sim.faults.set([Fault("post", "drop-after", times=1)])
    instance.tick()
    instance.deliver()
    operator = instance.ledger.operator
    operator.park(SERVICE, one, **WHO)
    assert operator.resume(SERVICE, one, **WHO) is BatchState.UNKNOWN
    world.settle(instance, rounds=5)
    assert world.violations() == []
    assert world.sim.posts == 1


def test_resubmitting_sends_the_same_bytes_at_once(new_world: NewWorld) -> None:
    world = new_world(kind="sawtooth")
    instance = world.instance()
    world.add_service()
    [one] = world.submit("one")
    world.sim.faults.set([Fault("post", "503-17", times=1)])
    instance.tick()
    instance.deliver()
    assert world.state(one) is BatchState.UNKNOWN
    assert instance.ledger.operator.resubmit(SERVICE, one, **WHO) is BatchState.DELAYED
    instance.tick()
    instance.deliver()
    assert world.sim.posts == 2
    world.settle(instance, rounds=2)
    assert world.violations() == []


def test_an_answer_about_an_earlier_attempt_does_not_count_for_a_later_one(
    new_world: NewWorld,
) -> None:
    """The batch looks as it did when the ledger was asked, but was sent again in between."""
    world = new_world(kind="sawtooth")
    instance = world.instance()
    world.add_service()
    [one] = world.submit("one")
    world.sim.faults.set([Fault("post", "503-17", times=2)])
    instance.tick()
    instance.deliver()
    world.advance(world.settings.ledger_poll_s_max)
    [asked] = instance.ledger.batches.take_up(rows_max=10)
    assert (asked.state, asked.attempts) == (BatchState.UNKNOWN, 1)
    instance.ledger.operator.resubmit(SERVICE, one, **WHO)
    instance.tick()
    instance.deliver()
    found = world.batch(one)
    assert (found.state, found.attempts) == (BatchState.UNKNOWN, 2)
    stale = Move(asked=asked, state=BatchState.INVALID, note="said of the first attempt")
    assert instance.ledger.batches.record_many([stale], "poller") == []
    assert world.batch(one) == found
    newer = replace(stale, asked=replace(asked, attempts=2))
    assert [each.state for each in instance.ledger.batches.record_many([newer], "poller")] == [
        BatchState.INVALID
    ]


def test_the_end_of_an_earlier_attempt_does_not_count_for_one_that_is_under_way(
    world: World, instance: Instance
) -> None:
    """Its sender was paused for so long that the batch is being sent again."""
    batches = instance.ledger.batches
    [one] = world.submit("one")
    instance.tick()
    [first] = batches.begin_many(instance.waiting, "paused")
    instance.waiting.clear()
    world.advance(world.settings.ledger_claim_ttl_s + 1)
    successor = world.instance()
    successor.tick()
    assert world.state(one) is BatchState.UNKNOWN
    instance.ledger.operator.resubmit(SERVICE, one, **WHO)
    successor.tick()
    [second] = batches.begin_many(successor.waiting, "successor")
    assert (second.attempt, second.epoch) == (first.attempt + 1, first.epoch + 1)
    under_way = world.batch(one)
    end = AttemptEnd(
        begun=second,
        verdict=Verdict.REFUSED,
        state=BatchState.INVALID,
        http_status=400,
        note="malformed",
        pause_s=0,
    )
    for stale in (
        first,
        replace(second, attempt=first.attempt),
        replace(second, epoch=first.epoch),
    ):
        assert batches.finish_many([replace(end, begun=stale)]) == ([], [])
        assert world.batch(one) == under_way
    assert batches.finish_many([end])[0] == [end]
    assert world.state(one) is BatchState.INVALID


def test_a_resolved_batch_is_final_and_the_next_goes_on(world: World, instance: Instance) -> None:
    one, two = world.submit("one", "two")
    operator = instance.ledger.operator
    operator.park(SERVICE, one, **WHO)
    assert operator.resolve(SERVICE, one, BatchState.INVALID, **WHO) is BatchState.INVALID
    world.settle(instance, rounds=5)
    assert (world.state(one), world.state(two)) == (BatchState.INVALID, BatchState.COMMITTED)
    assert world.executed() == [two]


def test_what_cannot_be_done_is_refused_and_changes_nothing(
    world: World, instance: Instance
) -> None:
    [one] = world.submit("one")
    operator = instance.ledger.operator
    with pytest.raises(BatchBusy, match="it is NEW; to resume it, it must be PARKED"):
        operator.resume(SERVICE, one, **WHO)
    with pytest.raises(BatchBusy, match="must be PARKED or UNKNOWN"):
        operator.resubmit(SERVICE, one, **WHO)
    with pytest.raises(LedgerError, match="COMMITTED or as INVALID"):
        operator.resolve(SERVICE, one, BatchState.NEW, **WHO)
    with pytest.raises(LedgerError, match="a reason must be given"):
        operator.park(SERVICE, one, actor=Actor(name="ann"), reason="  ")
    with pytest.raises(BatchUnknown):
        operator.park(SERVICE, "0" * 128, **WHO)
    world.settle(instance, rounds=2)
    for act in (operator.park, operator.resume, operator.resubmit):
        with pytest.raises(BatchBusy, match="it has ended: COMMITTED"):
            act(SERVICE, one, **WHO)
    assert audit(world) == []


def test_a_batch_that_is_being_submitted_is_left_alone(world: World, instance: Instance) -> None:
    from datp_tasks import failpoints

    [one] = world.submit("one")
    instance.tick()
    refused: list[str] = []

    def park() -> None:
        with pytest.raises(BatchBusy) as error:
            instance.ledger.operator.park(SERVICE, one, **WHO)
        refused.append(str(error.value))

    failpoints.arm("ledger.after_begin", park)
    instance.deliver()
    assert "being submitted right now" in refused[0]
    assert world.state(one) is BatchState.PENDING
