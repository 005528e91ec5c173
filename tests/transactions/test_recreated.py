"""Redis is lost before SQL heard of anything: what is queued anew may have been at work before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from datp_tasks import Pipeline, failpoints
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.archive_world import HOUR_S, World


@pytest.fixture
def world(sound: World) -> World:
    return sound


def lose_undrained(world: World) -> None:
    """Nothing reached the journal in SQL; the reconciler queues anew what was accepted."""
    kit = world.kit
    kit.clock.advance(seconds=kit.settings.ring_again_after_ms / 1_000 + 1)
    world.wipe()
    kit.lose_bells()
    kit.run_job("reconciler")
    kit.lose_bells(False)


def booked_and_lost(world: World, **options: Any) -> str:
    """Its first step was done, which only the Redis that was lost knew."""
    failpoints.arm("hop.after_step", "crash")
    tx_id = world.kit.submit("hop", {}, **options)
    failpoints.disarm_all()
    assert world.did == [("book", tx_id)]
    lose_undrained(world)
    assert world.status(tx_id) == "queued"
    assert "begun" not in world.fields(tx_id)
    return tx_id


# Who worked on it before.


def test_a_worker_of_before_the_loss_cannot_end_what_was_queued_anew(
    datp: Kit, world: World
) -> None:
    paused = datp.another()
    tx_id = world.queued("quick")
    step_type, pairs = datp.send.rung[-1]
    world.at("hop.before_final", lambda: lose_undrained(world))
    paused.celery.tasks[f"datp.step.{step_type}"].apply_async(args=(pairs,))
    [row] = datp.connections.record.summaries([tx_id])
    assert not row.is_final
    fields = world.fields(tx_id)
    assert (fields["status"], fields["version"]) == ("queued", "0")
    # The next claim gets a newer one, whatever the clock of Redis says.
    assert int(fields["fence"]) == row.fence > 0
    assert world.ends(tx_id) is Status.SUCCESS
    assert world.times("book", tx_id) == 2
    paused.close()


def test_one_whose_row_a_worker_holds_is_queued_anew_only_when_that_is_over(
    datp: Kit, world: World
) -> None:
    tx_id = world.queued("quick")
    with datp.connections.engine.begin() as step:
        step.exec_driver_sql(f"SELECT 1 FROM tx_summary WHERE tx_id = '{tx_id}' FOR UPDATE")
        lose_undrained(world)
        assert world.status(tx_id) is None
    datp.run_job("reconciler")
    assert datp.status(tx_id).status is Status.SUCCESS


# Taken back before a worker has it again.


def cancelled(kit: Kit, tx_id: str) -> None:
    kit.client.cancel(tx_id, "enough")


def expired(kit: Kit, tx_id: str) -> None:
    kit.clock.advance(seconds=HOUR_S + 1)
    kit.run_job("timeout_handler")


STOP_STATUSES = pytest.mark.parametrize(
    ("recall", "end"), [(cancelled, Status.CANCELLED), (expired, Status.EXPIRED)]
)
Recalling = Callable[[Kit, str], None]


@STOP_STATUSES
def test_one_that_may_have_begun_before_the_loss_is_parked_when_it_is_recalled(
    datp: Kit, world: World, recall: Recalling, end: Status
) -> None:
    """Ending it as never begun would leave the effect of its first step behind."""
    tx_id = booked_and_lost(world, expires_in_s=HOUR_S)
    recall(datp, tx_id)
    summary = datp.status(tx_id)
    assert summary.status is Status.IN_DOUBT
    assert "a person must decide" in (summary.note or "")
    assert [each.tx_id for each in datp.operator.in_doubt()] == [tx_id]
    datp.operator.resolve(tx_id, "done", reason="it is in the books")
    assert world.ends(tx_id) is end
    assert world.times("unbook", tx_id) == 1


@STOP_STATUSES
def test_what_a_person_knows_had_no_effect_ends_as_recalled_and_is_not_parked_again(
    datp: Kit, world: World, recall: Recalling, end: Status
) -> None:
    tx_id = booked_and_lost(world, expires_in_s=HOUR_S)
    recall(datp, tx_id)
    datp.lose_bells()
    datp.operator.resolve(tx_id, "redo", reason="nothing in the books")
    datp.lose_bells(False)
    datp.run_job("timeout_handler")
    assert world.ends(tx_id) is end
    assert world.times("unbook", tx_id) == 0


def test_a_cancel_that_was_asked_for_before_the_loss_parks_it_too(datp: Kit, world: World) -> None:
    failpoints.arm("hop.after_step", "crash")
    tx_id = datp.submit("hop", {})
    failpoints.disarm_all()
    assert datp.client.cancel(tx_id, "enough").status is Status.RUNNING
    lose_undrained(world)
    assert datp.status(tx_id).status is Status.IN_DOUBT
    datp.operator.resolve(tx_id, "done", reason="it is in the books")
    assert world.ends(tx_id) is Status.CANCELLED
    assert world.times("unbook", tx_id) == 1


@pytest.mark.parametrize("loss", ["wiped", "restarted"])
def test_a_loss_that_sql_can_tell_from_its_marks_or_the_server_parks_it_too(
    datp: Kit, world: World, loss: str
) -> None:
    tx_id = world.queued("hop")
    while datp.submit("wait", {})[1:3] != tx_id[1:3]:
        pass
    world.archive()
    datp.run_job("reconciler")
    failpoints.arm("hop.after_step", "crash")
    world.ring(tx_id)
    failpoints.disarm_all()
    assert world.did == [("book", tx_id)]
    datp.clock.advance(seconds=1)
    if loss == "wiped":
        world.wipe()
    else:
        _lose_last_second(world, tx_id)
    datp.lose_bells()
    datp.run_job("reconciler")
    datp.lose_bells(False)
    assert world.status(tx_id) == "queued"
    assert datp.client.cancel(tx_id, "enough").status is Status.IN_DOUBT


def test_a_loss_of_a_shard_of_which_sql_has_never_heard_parks_it_too(
    datp: Kit, world: World
) -> None:
    """The loss of the others is noticed and repaired; that must not hide this one."""
    failpoints.arm("hop.after_step", "crash")
    tx_id = datp.submit("hop", {})
    failpoints.disarm_all()
    other = world.queued("wait")
    while other[1:3] == tx_id[1:3]:
        other = world.queued("wait")
    redis, live = datp.connections.redis, datp.connections.live
    redis.delete(live.keys.of_tx(tx_id, "journalX"))
    world.ring(other)
    world.archive()
    datp.run_job("reconciler")
    lose_undrained(world)
    assert not datp.operator.doctor().lost_shards
    assert datp.client.cancel(tx_id, "enough").status is Status.IN_DOUBT


def _lose_last_second(world: World, tx_id: str) -> None:
    """Redis comes back as another process, without what it had not written to its file."""
    live, redis = world.kit.connections.live, world.kit.connections.redis
    [node] = [fields["node"] for fields in live.fields_many([tx_id])]
    redis.delete(live.keys.state(tx_id), live.keys.deltas(tx_id))
    redis.delete(live.keys.of_tx(tx_id, "journalX"))
    redis.zrem(live.keys.of_tx(tx_id, "processingZ"), tx_id)
    redis.srem(live.keys.of_tx(tx_id, f"runningS:{node}"), tx_id)
    world.sql("UPDATE live_server SET run_id = 'the one before'")


def test_one_that_left_memory_since_the_loss_is_parked_as_well(datp: Kit, world: World) -> None:
    """It expired, so a worker only put it to sleep for the timeout handler."""
    tx_id = booked_and_lost(world, expires_in_s=HOUR_S)
    datp.clock.advance(seconds=HOUR_S + 1)
    world.run_one_hop()
    assert world.status(tx_id) == "sleeping"
    world.archive()
    datp.connections.redis.delete(datp.connections.live.keys.state(tx_id))
    datp.run_job("timeout_handler")
    assert datp.status(tx_id).status is Status.IN_DOUBT


def test_one_whose_journal_tells_of_nothing_but_a_claim_is_parked_too(
    datp: Kit, world: World
) -> None:
    """The claim is in SQL; what its step did since then is not."""
    datp.use(Pipeline("first").step("t/pay").step("t/book").build())
    world.at("hop.after_claim", world.archive)
    world.after_effect = _crash
    tx_id = datp.submit("first", {})
    datp.clock.advance(seconds=1)
    world.wipe()
    datp.lose_bells()
    datp.run_job("reconciler")
    datp.lose_bells(False)
    assert (world.status(tx_id), world.times("pay", tx_id)) == ("queued", 1)
    datp.client.cancel(tx_id, "enough")
    assert datp.status(tx_id).status is Status.IN_DOUBT
    datp.operator.resolve(tx_id, "done", reason="it is in the books")
    assert world.ends(tx_id) is Status.CANCELLED
    assert ("unpay", f"{tx_id} {{}}") in world.did


def test_a_client_lost_while_it_parks_one_leaves_it_to_a_worker(datp: Kit, world: World) -> None:
    tx_id = booked_and_lost(world)
    failpoints.arm("seized.before_final", "crash")
    with pytest.raises(SimulatedCrash):
        datp.client.cancel(tx_id, "enough")
    # Its client got no answer, but SQL has the cancel; nothing is ended that may have begun.
    assert world.ends(tx_id) is Status.IN_DOUBT
    assert world.times("unbook", tx_id) == 0


def _crash() -> None:
    raise SimulatedCrash
