"""The reaper: at once, except for steps that may still be at work and must not run twice."""

from __future__ import annotations

import pytest

from datp_tasks.jobs.reaper import Result
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Final
from datp_tasks.testing import Kit
from datp_tasks.transactions.take_over import Taken
from tests.support.archive_world import World

#: What t/pay and t/ask say.
LIMIT_S = 30.0


@pytest.fixture
def world(sound: World) -> World:
    return sound


def give_up_nodes(kit: Kit) -> None:
    """So much time passes, with other workers beating, that a silent node is given up."""
    for pause_ms in (kit.settings.node_stale_ms, kit.settings.node_grace_ms):
        kit.clock.advance(seconds=pause_ms / 1_000 + 1)
        kit.process.heartbeat.beat_once()
        kit.run_job("reaper")


@pytest.mark.parametrize("point", ["hop.after_claim", "hop.after_step", "hop.after_checkpoint"])
def test_one_that_may_run_again_is_taken_over_at_once(datp: Kit, world: World, point: str) -> None:
    tx_id = world.crashed("rest", point)
    assert world.status(tx_id) == "running"
    give_up_nodes(datp)
    assert world.status(tx_id) == "sleeping"


@pytest.mark.parametrize("pipeline", ["pay", "ask"])
def test_one_in_the_middle_of_a_step_that_must_not_run_twice_waits_for_its_time_limit(
    datp: Kit, world: World, pipeline: str
) -> None:
    tx_id = world.crashed(pipeline, "hop.after_step", nth=2)
    neighbour = datp.submit("rest", {})
    begun_ms = int(world.fields(tx_id)["version"])
    give_up_nodes(datp)
    assert world.status(tx_id) == "running"
    assert world.status(neighbour) == "sleeping"
    left_s = (begun_ms + LIMIT_S * 1_000 - datp.connections.live.server_now_ms()) / 1_000
    datp.clock.advance(seconds=round(left_s) - 1)
    assert datp.run_job("reaper").taken == 0
    assert world.status(tx_id) == "running"
    datp.clock.advance(seconds=2)
    assert datp.run_job("reaper").taken == 1
    end = Status.IN_DOUBT if pipeline == "pay" else Status.SUCCESS
    assert datp.status(tx_id).status is end
    assert world.times(pipeline, tx_id) == 1


def test_one_that_had_closed_such_a_step_is_taken_over_at_once(datp: Kit, world: World) -> None:
    # The third checkpoint closes t/pay and opens the next step.
    tx_id = world.crashed("pay", "hop.after_step", nth=3)
    assert world.times("pay", tx_id) == 1
    give_up_nodes(datp)
    assert datp.status(tx_id).status is Status.SUCCESS
    assert world.times("pay", tx_id) == 1


def test_a_node_that_holds_such_a_step_is_not_forgotten_before(datp: Kit, world: World) -> None:
    tx_id = world.crashed("pay", "hop.after_step", nth=2)
    node = world.fields(tx_id)["node"]
    give_up_nodes(datp)
    assert datp.connections.live.listed_nodes([node]) == {node}
    assert node in datp.connections.live.silent_nodes()
    datp.clock.advance(seconds=LIMIT_S)
    datp.run_job("reaper")
    assert datp.connections.live.listed_nodes([node]) == set()
    assert datp.run_job("reaper") == Result(nodes=0, taken=0, ended=0)


@pytest.mark.kit(crashes_max=3)
def test_one_that_kills_its_worker_again_and_again_is_parked(datp: Kit, world: World) -> None:
    tx_id = world.crashed("quick", "hop.after_step")
    for _ in range(2):
        datp.crash_at("hop.after_step")
        give_up_nodes(datp)
        assert world.status(tx_id) == "running"
    give_up_nodes(datp)
    summary = datp.status(tx_id)
    assert summary.status is Status.IN_DOUBT
    assert summary.note == "step 1 of quick (t/book) lost its worker 3 times"
    assert world.times("book", tx_id) == 3
    datp.operator.resolve(tx_id, "redo", reason="the memory leak is mended")
    assert datp.status(tx_id).status is Status.SUCCESS


def test_what_a_live_node_runs_is_not_taken_for_that_of_a_dead_one(datp: Kit, world: World) -> None:
    """A list of a dead node can name what another node has claimed since."""
    tx_id = world.queued("quick")
    seen: list[tuple[Taken, bool]] = []

    def reap() -> None:
        before = (world.fields(tx_id), fence_in_sql())
        answer = datp.connections.recovery.take_over.from_node("a-dead-node", [tx_id])
        seen.append((answer, (world.fields(tx_id), fence_in_sql()) == before))

    def fence_in_sql() -> int:
        return int(world.sql("SELECT fence FROM tx_summary WHERE tx_id = :tx", tx=tx_id)[0][0])

    world.at("hop.after_step", reap)
    world.run_one_hop()
    assert seen == [(Taken(queued=0, ended=0), True)]
    assert datp.status(tx_id).status is Status.SUCCESS
    assert world.times("book", tx_id) == 1


def test_the_worker_of_a_node_that_was_given_up_cannot_end_what_it_had(
    datp: Kit, world: World
) -> None:
    """SQL knows of the new fence before Redis does: should the node only have been paused."""
    tx_id = world.crashed("quick", "hop.before_final")
    fence = int(world.fields(tx_id)["fence"])
    datp.lose_bells()
    datp.recover()
    assert world.status(tx_id) == "queued"
    late = Final(tx_id=tx_id, fence=fence, status=Status.SUCCESS, output_json=None, note=None)
    assert datp.connections.record.finish_many([late]) == set()
