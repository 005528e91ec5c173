"""Undoing is fenced by SQL: what SQL has ended, or given to another claim, is not rolled back."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Fail, Pipeline, failpoints
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.archive_world import World

Data = dict[str, Any]


@pytest.fixture
def world(datp: Kit) -> World:
    """With a second step that fails when it is run a second time."""
    world = World(datp)
    runs: list[str] = []

    @datp.step("t/moody")
    def moody(ctx: Any, data: Data) -> None:
        runs.append(ctx.tx_id)
        if runs.count(ctx.tx_id) > 1:
            raise Fail("not again")

    @datp.step("t/no")
    def refuse(ctx: Any, data: Data) -> None:
        raise Fail("no")

    datp.use(
        Pipeline("moody").step("t/book").step("t/moody").build(),
        Pipeline("no").step("t/book").step("t/no").build(),
        Pipeline("no-later").step("t/book").step("t/no", dispatch="queue").build(),
    )
    return world


def test_what_sql_has_ended_is_not_undone_although_redis_fell_back_to_before_it_ran(
    datp: Kit, world: World
) -> None:
    """Its client was told success; a worker gets it again before the reconciler looks."""
    tx_id = world.queued("moody")
    with world.rewound():
        world.run_one_hop()
        assert datp.status(tx_id).status is Status.SUCCESS
    assert world.status(tx_id) == "queued"
    datp.clock.advance(seconds=1)
    world.run_one_hop()
    assert world.did == [("book", tx_id), ("book", tx_id)]
    assert datp.status(tx_id).status is Status.SUCCESS
    # Redis follows SQL, and nothing is left to be run.
    assert world.status(tx_id) == "success"
    datp.recover()
    assert world.times("unbook", tx_id) == 0


@pytest.mark.parametrize("pipeline", ["no", "no-later"])
def test_a_worker_whose_claim_is_older_than_the_fence_of_sql_undoes_nothing(
    datp: Kit, world: World, pipeline: str
) -> None:
    """Redis still takes it for the holder, as after falling back; SQL knows of a newer claim."""
    tx_id = world.queued(pipeline)

    def raise_fence() -> None:
        fence = int(world.fields(tx_id)["fence"])
        datp.connections.record.raise_fences([(tx_id, fence)])

    if pipeline == "no-later":
        world.run_one_hop()
    world.at("hop.after_step", raise_fence)
    world.run_one_hop()
    assert world.times("unbook", tx_id) == 0
    assert not datp.connections.record.summaries([tx_id])[0].is_final
    # The next claim has the newest fence, and rolls it back once.
    assert world.ends(tx_id) is Status.FAILED
    assert world.times("unbook", tx_id) == 1


def test_the_fences_of_a_vector_are_taken_in_one_commit(datp: Kit, world: World) -> None:
    datp.lose_bells()
    tx_ids = [datp.submit("no", {}) for _ in range(5)]
    datp.lose_bells(False)
    pairs = [pair for _, rung in datp.send.rung for pair in rung]
    assert sorted(tx for tx, _ in pairs) == sorted(tx_ids)
    before = datp.connections.record.commits
    datp.celery.tasks["datp.step.t/book"].apply_async(args=(pairs,))
    assert {datp.status(tx).status for tx in tx_ids} == {Status.FAILED}
    # One for the fences before the first undo, one for the ends.
    assert datp.connections.record.commits - before == 2


def test_from_the_first_undo_on_an_older_claim_cannot_end_it(datp: Kit, world: World) -> None:
    """The worker of before a loss is about to commit success, while this one undoes."""
    tx_id = world.queued("no")
    seen: list[int] = []
    fences: list[int] = []

    def look() -> None:
        fences.append(int(world.fields(tx_id)["fence"]))
        seen.append(datp.connections.record.summaries([tx_id])[0].fence)

    # After the third step function that is called: that is the undo.
    failpoints.arm("hop.after_step", look, nth=3)
    world.run_one_hop()
    assert world.times("unbook", tx_id) == 1
    assert seen == fences
