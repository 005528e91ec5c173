"""Redis falls back in time: what SQL knows better is put right, what went on stays."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Pipeline, Sleep
from datp_tasks.live.invariants import check_all
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.archive_world import HOUR_S, World


@pytest.fixture
def world(sound: World) -> World:
    return sound


def noticed(world: World) -> bool:
    return bool(world.kit.operator.doctor().lost_shards)


def reconcile(world: World) -> int:
    result = world.kit.run_job("reconciler")
    assert check_all(world.kit.connections.live) == []
    return int(result.rebuilt)


def test_the_newer_state_of_sql_wins(datp: Kit, world: World) -> None:
    tx_id = datp.submit("wait", {})
    world.archive()
    with world.rewound():
        datp.clock.advance(seconds=1)
        datp.client.set_switch(tx_id, "other", "late")
        world.archive()
    assert "switch:other" not in world.fields(tx_id)
    assert noticed(world)
    assert reconcile(world) == 1
    assert world.fields(tx_id)["switch:other"] == '1:"late"'
    assert not noticed(world)
    assert datp.client.set_switch(tx_id, "go", 1)
    assert datp.status(tx_id).status is Status.SUCCESS


def test_what_sql_has_ended_ends_in_redis(datp: Kit, world: World) -> None:
    asleep, running = datp.submit("wait", {}), datp.submit("rest", {})
    world.archive()
    with world.rewound():
        datp.clock.advance(seconds=1)
        datp.client.set_switch(asleep, "go", 1)
        datp.client.wake(running)
        assert datp.status(running).status is Status.SUCCESS
        world.archive()
    assert (world.status(asleep), world.status(running)) == ("sleeping", "sleeping")
    assert noticed(world)
    reconcile(world)
    assert (world.status(asleep), world.status(running)) == ("success", "success")
    datp.advance(days=2)
    assert (world.times("book", asleep), world.times("book", running)) == (1, 2)


@pytest.mark.parametrize("status", ["queued", "running"])
def test_one_that_was_rewound_into_the_past_does_not_repeat_it(
    datp: Kit, world: World, status: str
) -> None:
    """Back to where it was about to pay; SQL knows that it has paid and sleeps since."""
    datp.use(Pipeline("q").step("t/book").step("t/pay", dispatch="queue").step("t/rest").build())
    tx_id = world.queued("q")
    world.run_one_hop()
    world.archive()
    if status == "running":
        datp.crash_at("hop.after_claim")
        world.ring(tx_id)
    assert world.status(tx_id) == status
    with world.rewound():
        datp.clock.advance(seconds=1)
        datp.recover()
        assert world.status(tx_id) == "sleeping"
        world.archive()
    assert world.status(tx_id) == status
    reconcile(world)
    assert world.status(tx_id) == "sleeping"
    datp.advance(seconds=HOUR_S)
    assert world.ends(tx_id) is Status.SUCCESS
    assert world.times("pay", tx_id) == 1


def test_one_that_was_rewound_and_went_on_keeps_the_branch_it_lives_on(
    datp: Kit, world: World
) -> None:
    tx_id, other = datp.submit("wait", {}), datp.submit("wait", {})
    world.archive()
    with world.rewound():
        datp.clock.advance(seconds=1)
        datp.client.set_switch(tx_id, "lost", 1)
        datp.client.set_switch(other, "lost", 1)
        world.archive()
    # Before anybody notices, it moves on from where Redis has it.
    datp.clock.advance(seconds=1)
    datp.client.set_switch(tx_id, "living", 1)
    reconcile(world)
    fields = world.fields(tx_id)
    assert "switch:living" in fields
    assert world.fields(other)["switch:lost"] == "1:1"
    world.archive()
    # Nothing but the branch that lives leads to what is there.
    assert datp.operator.replay(tx_id).faults == []
    world.wipe()
    datp.clock.advance(seconds=1)
    reconcile(world)
    assert "switch:living" in world.fields(tx_id)
    datp.client.set_switch(tx_id, "go", 1)
    assert datp.status(tx_id).status is Status.SUCCESS


def test_a_loss_is_noticed_although_the_archiver_has_read_on_since(datp: Kit, world: World) -> None:
    """Its readings are what the loss is told by, and each of them counts one more."""
    stale, busy = datp.submit("wait", {}), datp.submit("wait", {})
    while busy[1:3] != stale[1:3]:
        busy = datp.submit("wait", {})
    world.archive()
    with world.rewound():
        datp.clock.advance(seconds=1)
        datp.client.set_switch(stale, "other", 1)
        world.archive()
    for number in range(5):
        datp.clock.advance(seconds=1)
        datp.client.set_switch(busy, "n", number)
        world.archive()
    assert noticed(world)
    assert reconcile(world) >= 1
    assert world.fields(stale)["switch:other"] == "1:1"
    assert not noticed(world)
    # And it is over: reading on does not bring it up again.
    datp.client.set_switch(busy, "n", 99)
    world.archive()
    assert not noticed(world)
    assert reconcile(world) == 0


def test_a_switch_that_was_set_after_the_last_reading_of_the_journal_is_set_again(
    datp: Kit, world: World
) -> None:
    """SQL has no newer state of it, so nothing is restored; but its client was told."""
    tx_id, busy = datp.submit("wait", {}), datp.submit("wait", {})
    world.archive()
    datp.lose_bells()
    with world.rewound():
        datp.clock.advance(seconds=1)
        datp.client.set_switch(busy, "n", 1)
        world.archive()
        datp.client.set_switch(tx_id, "go", 1)
    datp.lose_bells(False)
    assert noticed(world)
    assert "switch:go" not in world.fields(tx_id)
    reconcile(world)
    assert datp.status(tx_id).status is Status.SUCCESS


def test_a_switch_that_a_step_has_used_up_is_set_again_if_redis_has_lost_that_as_well(
    datp: Kit, world: World
) -> None:
    """The step did not happen, as far as anything knows: without the switch it waits for ever."""
    seen: list[str] = []

    @datp.step("t/use-up")
    def use_up(ctx: Any, data: dict[str, Any]) -> Sleep:
        if ctx.switch("go"):
            seen.append(ctx.tx_id)
            ctx.set_switch("go", None)
        return Sleep(switch="go", seconds=HOUR_S)

    datp.use(Pipeline("used-up").step("t/use-up").build())
    tx_id, busy = datp.submit("used-up", {}), datp.submit("wait", {})
    world.archive()
    with world.rewound():
        datp.clock.advance(seconds=1)
        datp.client.set_switch(busy, "n", 1)
        world.archive()
        datp.client.set_switch(tx_id, "go", True)
    assert seen == [tx_id]
    reconcile(world)
    assert seen == [tx_id, tx_id]
    assert datp.status(tx_id).status is Status.SLEEPING


def test_entries_that_were_drained_before_and_are_there_again_are_recorded_once(
    datp: Kit, world: World
) -> None:
    tx_id = datp.submit("wait", {})
    with world.rewound():
        world.archive()
        before = world.entries(tx_id)
    assert world.backlog() == len(before)
    datp.client.set_switch(tx_id, "a", 1)
    world.archive()
    assert world.entries(tx_id)[:-1] == before
    assert world.entries(tx_id)[-1].kind == "switch"


def test_one_accepted_after_the_moment_that_redis_fell_back_to_is_placed_again(
    datp: Kit, world: World
) -> None:
    datp.submit("wait", {})
    world.archive()
    with world.rewound():
        datp.clock.advance(seconds=1)
        fresh, begun = world.queued("quick"), datp.submit("rest", {})
        world.archive()
    reconcile(world)
    assert world.status(begun) == "sleeping"
    # Its shard may have lost nothing that SQL knew of; then its row is found a little later.
    assert world.ends(fresh) is Status.SUCCESS
    assert (world.times("book", fresh), world.times("book", begun)) == (1, 1)
