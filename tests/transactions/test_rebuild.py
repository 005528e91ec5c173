"""Redis loses everything: the reconciler brings back what was accepted, wherever it stood."""

from __future__ import annotations

import time
from typing import Any

import pytest

from datp_tasks import failpoints
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.jobs import reconciler
from datp_tasks.jobs.rebuild import REDIS_LOSS
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.invariants import check_all
from datp_tasks.model.status import Status
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import HOUR_S, World
from tests.support.eventually import eventually


@pytest.fixture
def world(sound: World) -> World:
    return sound


def lose_everything(world: World) -> None:
    """What SQL has got by then is all there is; it is noticed a little later."""
    world.archive()
    world.kit.clock.advance(seconds=1)
    world.wipe()
    assert world.kit.operator.doctor().lost_shards


def reconcile(world: World) -> int:
    result = world.kit.run_job("reconciler")
    return int(result.rebuilt)


# Each status.


@pytest.mark.parametrize("is_drained", [True, False])
def test_one_that_was_never_begun_is_queued_again(
    datp: Kit, world: World, is_drained: bool
) -> None:
    tx_id = world.queued("quick", external_id="o-1")
    datp.submit("wait", {})
    if is_drained:
        lose_everything(world)
        reconcile(world)
    else:
        # Nothing was ever archived, so no mark tells of the loss; its row is enough.
        world.wipe()
    assert world.ends(tx_id) is Status.SUCCESS
    assert world.times("book", tx_id) == 1


def test_one_that_was_queued_half_way_goes_on_there(datp: Kit, world: World) -> None:
    tx_id = world.queued("hop")
    world.run_one_hop()
    assert world.status(tx_id) == "queued"
    lose_everything(world)
    reconcile(world)
    assert datp.status(tx_id).output == {"booked": 2}
    assert world.times("book", tx_id) == 2


def test_one_in_the_middle_of_a_step_that_may_run_again_runs_it_again(
    datp: Kit, world: World
) -> None:
    tx_id = world.crashed("quick", "hop.after_step")
    lose_everything(world)
    reconcile(world)
    assert datp.status(tx_id).output == {"booked": 1}
    assert world.times("book", tx_id) == 2


@pytest.mark.parametrize("point", ["hop.after_begun", "hop.after_step"])
@pytest.mark.parametrize("is_drained", [True, False], ids=["begin-drained", "begin-lost"])
def test_one_in_the_middle_of_a_step_for_review_is_parked_and_does_nothing_twice(
    datp: Kit, world: World, point: str, is_drained: bool
) -> None:
    nth = 1 if point == "hop.after_begun" else 2
    _lose_in_step(world, "pay", point, nth, is_drained)
    tx_id = world.did[0][1]
    assert world.ends(tx_id) is Status.IN_DOUBT
    assert "a person must decide" in (datp.status(tx_id).note or "")
    assert world.times("pay", tx_id) == (point == "hop.after_step")
    assert world.times("book", tx_id) == 1
    datp.operator.resolve(tx_id, "done", reason="seen in the books", output={"paid": 1})
    assert datp.finish(tx_id).output == {"paid": 1, "booked": 1}


@pytest.mark.parametrize("is_drained", [True, False], ids=["begin-drained", "begin-lost"])
def test_one_in_the_middle_of_a_step_with_a_probe_asks(
    datp: Kit, world: World, is_drained: bool
) -> None:
    _lose_in_step(world, "ask", "hop.after_step", 2, is_drained)
    tx_id = world.did[0][1]
    assert world.ends(tx_id) is Status.SUCCESS
    assert datp.status(tx_id).output == {"found": True, "booked": 1}
    assert world.times("ask", tx_id) == 1


def _lose_in_step(world: World, pipeline: str, point: str, nth: int, is_drained: bool) -> None:
    """`is_drained`: SQL has the journal up to the crash, else only up to the step before."""
    if is_drained:
        world.crashed(pipeline, point, nth=nth)
    else:
        # The mark of the step is in SQL, its entry in the journal is not.
        world.at("hop.after_checkpoint", world.archive)
        failpoints.arm(point, "crash", nth=nth)
        world.kit.submit(pipeline, {})
        failpoints.disarm_all()
        world.kit.clock.advance(seconds=1)
        world.wipe()
        return
    failpoints.disarm_all()
    lose_everything(world)


@pytest.mark.parametrize("is_evicted", [False, True])
def test_one_that_sleeps_sleeps_on_and_wakes_in_time(
    datp: Kit, world: World, is_evicted: bool
) -> None:
    tx_id = world.asleep_and_gone() if is_evicted else datp.submit("rest", {})
    lose_everything(world)
    assert reconcile(world) == 1
    assert world.status(tx_id) == "sleeping"
    datp.clock.advance(seconds=HOUR_S - 2)
    datp.run_job("sleeper")
    assert world.status(tx_id) == "sleeping"
    datp.clock.advance(seconds=2)
    datp.run_job("sleeper")
    assert datp.status(tx_id).output == {"booked": 2}


def test_one_that_waits_for_a_switch_keeps_those_that_were_set(datp: Kit, world: World) -> None:
    tx_id = datp.submit("wait", {})
    datp.client.set_switch(tx_id, "other", "kept")
    lose_everything(world)
    reconcile(world)
    fields = world.fields(tx_id)
    assert (fields["wakeSwitch"], fields["switch:other"]) == ("go", '1:"kept"')
    assert datp.client.set_switch(tx_id, "go", 1)
    assert datp.status(tx_id).status is Status.SUCCESS


def test_one_whose_switch_was_set_before_its_step_looked_does_not_wait_for_it(
    datp: Kit, world: World
) -> None:
    tx_id = world.queued("wait")
    world.run_one_hop()
    datp.lose_bells()
    datp.client.set_switch(tx_id, "go", 1)
    datp.lose_bells(False)
    assert world.status(tx_id) == "queued"
    lose_everything(world)
    reconcile(world)
    assert datp.status(tx_id).output == {"go": 1, "booked": 1}


def test_one_in_doubt_stays_in_doubt_and_can_be_decided(datp: Kit, world: World) -> None:
    tx_id = world.crashed("pay", "hop.after_step", nth=2)
    datp.recover()
    assert world.status(tx_id) == "in-doubt"
    why = world.fields(tx_id)["problem"]
    lose_everything(world)
    reconcile(world)
    assert (world.status(tx_id), world.fields(tx_id)["problem"]) == ("in-doubt", why)
    datp.operator.resolve(tx_id, "redo", reason="nothing was paid")
    assert datp.finish(tx_id).status is Status.SUCCESS
    assert world.times("pay", tx_id) == 2


def test_one_that_rolls_back_rolls_back_the_rest(datp: Kit, world: World) -> None:
    tx_id = datp.submit("undo", {})
    datp.clock.advance(seconds=HOUR_S)
    # Its ending is decided, and its undo begins.
    failpoints.arm("hop.after_checkpoint", "crash", nth=2)
    datp.run_job("sleeper")
    failpoints.disarm_all()
    assert world.status(tx_id) == "running"
    lose_everything(world)
    assert world.ends(tx_id) is Status.FAILED
    assert world.times("unbook", tx_id) == 1
    assert world.times("book", tx_id) == 1


def test_one_that_was_cancelled_is_rolled_back_without_a_second_request(
    datp: Kit, world: World
) -> None:
    tx_id = datp.submit("rest", {})
    datp.lose_bells()
    datp.client.cancel(tx_id, "enough")
    datp.lose_bells(False)
    assert world.status(tx_id) == "queued"
    lose_everything(world)
    reconcile(world)
    assert datp.status(tx_id).status is Status.CANCELLED
    assert world.times("unbook", tx_id) == 1


def test_one_in_a_child_pipeline_returns_to_its_parent(datp: Kit, world: World) -> None:
    failpoints.arm("hop.after_step", "crash", nth=2)
    tx_id = datp.submit("family", {})
    failpoints.disarm_all()
    lose_everything(world)
    assert world.ends(tx_id) is Status.SUCCESS
    assert datp.status(tx_id).output == {"booked": 1}


def test_one_that_expires_does_so_in_time(datp: Kit, world: World) -> None:
    tx_id = datp.submit("rest", {"seconds": 10 * HOUR_S}, expires_in_s=HOUR_S)
    lose_everything(world)
    reconcile(world)
    assert world.fields(tx_id)["expiresAt"]
    datp.advance(seconds=HOUR_S)
    datp.advance(seconds=61)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert world.times("unbook", tx_id) == 1


def test_many_of_all_kinds_end_right_and_only_once(datp: Kit, world: World) -> None:
    names = ("quick", "rest", "wait", "pay", "ask", "undo", "family", "hop")
    tx_ids = {name: [datp.submit(name, {}) for _ in range(3)] for name in names}
    tx_ids["queued"] = [world.queued("quick") for _ in range(3)]
    lose_everything(world)
    reconcile(world)
    assert check_all(datp.connections.live) == []
    for tx_id in tx_ids["wait"]:
        datp.client.set_switch(tx_id, "go", 1)
    datp.recover()
    datp.advance(seconds=HOUR_S)
    for name, ids in tx_ids.items():
        for tx_id in ids:
            end = datp.status(tx_id).status
            assert end is (Status.FAILED if name == "undo" else Status.SUCCESS), name
            assert world.times("pay", tx_id) == (name == "pay")
            assert world.times("ask", tx_id) == (name == "ask")
    assert datp.operator.doctor().is_healthy


# How it is done.


def test_a_loss_opens_an_alert_until_it_is_repaired(datp: Kit, world: World) -> None:
    datp.submit("rest", {})
    lose_everything(world)
    diagnosis = datp.operator.doctor()
    assert diagnosis.lost_shards
    assert not diagnosis.is_healthy
    seen: list[str] = []
    alerts = Alerts(datp.connections.engine, datp.clock)
    world.at(
        "rebuild.before_marks",
        lambda: seen.extend(each.summary for each in alerts.open_alerts(REDIS_LOSS)),
    )
    reconcile(world)
    [summary] = seen
    assert "Redis has lost writes" in summary
    assert alerts.open_alerts() == []
    assert datp.operator.doctor().is_healthy
    assert reconcile(world) == 0


@pytest.mark.parametrize(
    "point", ["rebuild.after_fence", "rebuild.after_restore", "rebuild.before_marks"]
)
def test_a_rebuild_that_crashes_is_done_by_the_next_one(
    datp: Kit, world: World, point: str
) -> None:
    asleep, half_way = datp.submit("rest", {}), world.queued("hop")
    world.run_one_hop()
    in_step = world.crashed("quick", "hop.after_step")
    failpoints.disarm_all()
    lose_everything(world)
    failpoints.arm(point, "crash")
    with pytest.raises(SimulatedCrash):
        reconcile(world)
    datp.recover()
    assert world.ends(asleep) is Status.SUCCESS
    assert world.ends(half_way) is Status.SUCCESS
    assert world.ends(in_step) is Status.SUCCESS
    assert (world.times("book", asleep), world.times("book", half_way)) == (2, 2)
    assert datp.operator.doctor().is_healthy


def test_a_rebuild_that_takes_too_long_is_continued(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "REBUILD_RUN_S", 0.1)
    monkeypatch.setattr(reconciler, "BATCH_MAX", 3)
    kit = Kit(datp_servers)
    world = World(kit)
    tx_ids = [kit.submit("wait", {}) for _ in range(20)]
    lose_everything(world)
    runs = 0
    spent: list[None] = []

    def spend_all_time() -> None:
        spent.append(None)
        ends_s = time.monotonic() + 0.1
        eventually(lambda: time.monotonic() > ends_s)

    while kit.operator.doctor().lost_shards:
        runs += 1
        world.at("rebuild.after_restore", spend_all_time)
        # What is in memory again is not lost when Redis is asked to go on.
        kit.run_job("reconciler")
        assert runs < 30
    assert runs > 3
    assert len(spent) >= 6
    assert all(world.status(tx) == "sleeping" for tx in tx_ids)
    assert check_all(kit.connections.live) == []
    assert world.faults() == {}
    kit.close()


def test_only_one_rebuilds_at_a_time(datp: Kit, world: World) -> None:
    datp.submit("rest", {})
    lose_everything(world)
    other = datp.another()
    results: list[Any] = []
    world.at("rebuild.after_fence", lambda: results.append(other.run_job("reconciler").rebuilt))
    assert reconcile(world) == 1
    assert results == [0]
    other.close()


def test_a_worker_that_was_paused_in_a_step_is_refused_after_the_rebuild(
    datp: Kit, world: World
) -> None:
    """It holds a claim of before the loss; somebody else has ended the transaction meanwhile."""
    paused = datp.another()
    tx_id = world.queued("quick")
    step_type, pairs = datp.send.rung[-1]
    ends: list[Status] = []

    def meanwhile() -> None:
        lose_everything(world)
        reconcile(world)
        ends.append(datp.status(tx_id).status)

    world.at("hop.after_step", meanwhile)
    paused.celery.tasks[f"datp.step.{step_type}"].apply_async(args=(pairs,))
    assert ends == [Status.SUCCESS]
    assert datp.status(tx_id).output == {"booked": 1}
    changes = world.sql("SELECT status FROM tx_state_change WHERE tx_id = :tx", tx=tx_id)
    assert [each.status for each in changes] == ["queued", "success"]
    datp.recover()
    paused.close()


def test_a_worker_that_was_paused_cannot_end_one_that_another_worker_has(
    datp: Kit, world: World
) -> None:
    paused = datp.another()
    tx_id = world.queued("quick")
    step_type, pairs = datp.send.rung[-1]

    def meanwhile() -> None:
        lose_everything(world)
        datp.lose_bells()
        reconcile(world)
        datp.lose_bells(False)
        assert world.status(tx_id) == "queued"

    world.at("hop.before_final", meanwhile)
    paused.celery.tasks[f"datp.step.{step_type}"].apply_async(args=(pairs,))
    # SQL refused its ending, Redis its scripts.
    assert not datp.connections.record.summaries([tx_id])[0].is_final
    assert world.status(tx_id) == "queued"
    assert world.ends(tx_id) is Status.SUCCESS
    paused.close()


def test_rows_that_are_final_and_whose_finish_never_ran_end_in_redis(
    datp: Kit, world: World
) -> None:
    """SQL had decided, and the worker was lost before it could tell Redis."""
    tx_id = world.crashed("quick", "hop.after_final")
    assert world.status(tx_id) == "running"
    datp.recover()
    assert world.status(tx_id) == "success"
    datp.advance(seconds=61)
    assert world.archived(tx_id) is not None
    assert world.times("book", tx_id) == 1


def test_one_that_ended_in_a_shard_whose_journal_was_never_read_gets_its_last_entries(
    datp: Kit, world: World
) -> None:
    datp.submit("quick", {})
    world.archive()
    read = ArchiveFeed(datp.connections.live).marks()
    ids = [datp.submit("quick", {}, external_id=f"x-{number}") for number in range(20)]
    unread = [tx_id for tx_id in ids if not read[tx_id[1:3]]]
    assert unread
    datp.clock.advance(seconds=1)
    world.wipe()
    reconcile(world)
    datp.advance(seconds=61)
    assert [tx_id for tx_id in unread if world.archived(tx_id) is None] == []


def test_a_clock_that_is_behind_does_not_hold_up_a_rebuild(datp: Kit, world: World) -> None:
    """The server that took over has a clock of its own."""
    asleep, half_way = world.queued("rest"), world.queued("hop")
    datp.clock.advance(seconds=2 * HOUR_S)
    world.run_one_hop()
    world.ring(asleep)
    assert (world.status(asleep), world.status(half_way)) == ("sleeping", "queued")
    datp.lose_bells()
    lose_everything(world)
    assert reconcile(world) == 2
    fences = [int(world.fields(tx)["fence"]) for tx in (asleep, half_way)]
    datp.lose_bells(False)
    world.archive()
    world.wipe()
    datp.clock.advance(seconds=-HOUR_S)
    assert reconcile(world) == 2
    assert [int(world.fields(tx)["fence"]) for tx in (asleep, half_way)] > fences
    assert datp.status(half_way).status is Status.SUCCESS
    datp.client.wake(asleep)
    assert datp.status(asleep).status is Status.SUCCESS


def test_marks_are_counted_once_for_each_reading(datp: Kit, world: World) -> None:
    datp.submit("rest", {})
    before = sum(ArchiveFeed(datp.connections.live).marks().values())
    world.archive()
    world.archive()
    assert sum(ArchiveFeed(datp.connections.live).marks().values()) == before + 1
