"""What is old is dropped if the settings say so: in bounded batches, and only what has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.archive.archive_world import World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(datp_servers: Servers) -> Iterator[MakeWorld]:
    made: list[Kit] = []

    def make(**settings: Any) -> World:
        made.append(Kit(datp_servers, **settings))
        return World(made[-1])

    yield make
    for kit in made:
        kit.close()


def rows(world: World, table: str, tx_id: str) -> int:
    return int(world.sql(f"SELECT count(*) FROM {table} WHERE tx_id = :tx", tx=tx_id)[0][0])


def kept(world: World, tx_id: str) -> tuple[bool, bool]:
    """Whether its archived state and its journal are there."""
    return rows(world, "tx_state", tx_id) > 0, rows(world, "tx_journal", tx_id) > 0


def test_by_default_everything_is_kept(make_world: MakeWorld) -> None:
    world = make_world()
    tx_id = world.kit.submit("quick", {})
    world.kit.advance(seconds=61)
    world.kit.advance(days=36_000)
    assert kept(world, tx_id) == (True, True)


def test_what_ended_long_ago_is_dropped_each_kind_by_its_own_setting(
    make_world: MakeWorld,
) -> None:
    world = make_world(keep_states_days=1, keep_journal_days=3)
    tx_id = world.kit.submit("pay", {})
    world.kit.advance(seconds=61)
    world.kit.advance(days=0.9)
    assert kept(world, tx_id) == (True, True)
    world.kit.advance(days=0.2)
    assert kept(world, tx_id) == (False, True)
    assert rows(world, "step_begun", tx_id) == 1
    assert world.faults() == {}
    world.kit.advance(days=2)
    assert kept(world, tx_id) == (False, False)
    assert rows(world, "step_begun", tx_id) == 0
    # Its summary stays, and an audit knows that its journal is gone by order.
    assert world.kit.status(tx_id).output == {"booked": 2, "paid": True}
    [replay] = world.kit.client.audit()
    assert (replay.dropped, replay.faults) == (True, [])


def test_a_journal_that_is_gone_too_early_is_not_taken_for_dropped(make_world: MakeWorld) -> None:
    world = make_world(keep_journal_days=3)
    tx_id = world.kit.submit("quick", {})
    world.kit.advance(seconds=61)
    world.sql("DELETE FROM tx_journal WHERE tx_id = :tx", tx=tx_id)
    assert list(world.faults()) == [tx_id]


@pytest.mark.parametrize("pipeline", ["wait", "rest"])
def test_one_that_has_not_ended_is_never_touched(make_world: MakeWorld, pipeline: str) -> None:
    world = make_world(keep_states_days=1, keep_journal_days=1)
    tx_id = world.asleep_and_gone(pipeline, {"seconds": 86_400 * 300})
    in_doubt = world.crashed("pay", "hop.after_step", nth=2)
    world.kit.recover()
    for _ in range(3):
        world.kit.clock.advance(days=20)
        world.archive()
        world.kit.run_job("retention")
    for each in (tx_id, in_doubt):
        assert kept(world, each) == (True, True)
    assert rows(world, "step_begun", in_doubt) == 1
    if pipeline == "wait":
        assert world.kit.client.set_switch(tx_id, "go", 1)
        assert world.kit.status(tx_id).status == "success"


def test_one_that_has_just_ended_keeps_its_old_journal(make_world: MakeWorld) -> None:
    world = make_world(keep_journal_days=1, keep_states_days=1)
    tx_id = world.asleep_and_gone("rest", {"seconds": 86_400 * 10})
    world.kit.advance(days=10)
    world.kit.advance(seconds=61)
    assert world.kit.status(tx_id).status == "success"
    assert kept(world, tx_id) == (True, True)


def test_batches_are_bounded(make_world: MakeWorld) -> None:
    world = make_world(keep_states_days=1, keep_journal_days=1, retention_batch_max=2)
    for _ in range(5):
        world.kit.submit("quick", {})
    world.kit.advance(seconds=61)
    world.kit.clock.advance(days=2)
    results = [world.kit.run_job("retention") for _ in range(4)]
    assert [each.states for each in results] == [2, 2, 1, 0]
    assert [each.journals for each in results] == [2, 2, 1, 0]
