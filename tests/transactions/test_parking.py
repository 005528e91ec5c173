"""Parking in doubt: SQL first, then Redis, and every part of it can be done again."""

from __future__ import annotations

import pytest

from datp_tasks import failpoints
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Mark
from datp_tasks.testing import Kit
from tests.support.archive_world import World


def changes(world: World, tx_id: str) -> list[str]:
    """The statuses that the history of a transaction tells, in order."""
    rows = world.sql("SELECT status FROM tx_state_change WHERE tx_id = :tx ORDER BY id", tx=tx_id)
    return [row.status for row in rows]


def in_sql(world: World, tx_id: str) -> tuple[Status, int, str | None]:
    [row] = world.kit.connections.record.summaries([tx_id])
    return row.status, row.fence, row.note


# The record.


def test_marking_again_under_the_same_or_a_newer_fence_succeeds_and_is_told_once(
    datp: Kit, world: World
) -> None:
    record, tx_id = datp.connections.record, world.queued("quick")
    assert record.mark(tx_id, 1_000, Status.IN_DOUBT, "why")
    assert record.mark(tx_id, 1_000, Status.IN_DOUBT, "why")
    assert record.mark(tx_id, 2_000, Status.IN_DOUBT, "why, again")
    assert in_sql(world, tx_id) == (Status.IN_DOUBT, 2_000, "why, again")
    assert changes(world, tx_id) == ["queued", "in-doubt"]


def test_a_stale_worker_cannot_mark_and_lowers_no_fence(datp: Kit, world: World) -> None:
    record, tx_id = datp.connections.record, world.queued("quick")
    assert record.raise_fences([(tx_id, 1_000)]) == {tx_id: 1_001}
    assert not record.mark(tx_id, 1_000, Status.IN_DOUBT, "why")
    assert in_sql(world, tx_id) == (Status.QUEUED, 1_001, None)
    assert record.mark(tx_id, 1_001, Status.IN_DOUBT, "why")
    assert not record.mark(tx_id, 1_000, Status.IN_DOUBT, "older")
    assert in_sql(world, tx_id) == (Status.IN_DOUBT, 1_001, "why")
    assert changes(world, tx_id) == ["queued", "in-doubt"]


def test_many_are_marked_in_one_commit_and_each_has_its_own_answer(datp: Kit, world: World) -> None:
    record = datp.connections.record
    fine, again, stale = (world.queued("quick") for _ in range(3))
    ended = datp.submit("quick", {})
    record.mark(again, 5, Status.IN_DOUBT, "before")
    record.raise_fences([(stale, 1_000)])
    before = record.commits
    marked = record.mark_many(
        [Mark(tx_id, 1_000, f"note {place}") for place, tx_id in enumerate([fine, again])]
        + [Mark(stale, 1_000, "too late"), Mark(ended, 10**15, "too late")],
        Status.IN_DOUBT,
    )
    assert record.commits == before + 1
    assert marked == {fine, again}
    assert in_sql(world, fine) == (Status.IN_DOUBT, 1_000, "note 0")
    assert in_sql(world, again) == (Status.IN_DOUBT, 1_000, "note 1")
    assert in_sql(world, stale) == (Status.QUEUED, 1_001, None)
    assert in_sql(world, ended)[0] is Status.SUCCESS
    assert changes(world, again) == changes(world, fine) == ["queued", "in-doubt"]
    assert record.mark_many([], Status.IN_DOUBT) == set()


# The worker.


def test_a_worker_lost_between_sql_and_redis_strands_nothing(datp: Kit, sound: World) -> None:
    """SQL has it in doubt and Redis has not: the next worker must be able to park it again."""
    sound.crashed("pay", "hop.after_step", nth=2)
    tx_id = sound.did[0][1]
    failpoints.disarm_all()
    failpoints.arm("hop.after_park_mark", "crash")
    datp.repair()
    assert in_sql(sound, tx_id)[0] is Status.IN_DOUBT
    assert sound.status(tx_id) != "in-doubt"
    assert sound.ends(tx_id) is Status.IN_DOUBT
    assert sound.status(tx_id) == "in-doubt"
    assert changes(sound, tx_id) == ["queued", "in-doubt"]
    assert [each.tx_id for each in datp.operator.in_doubt()] == [tx_id]
    datp.operator.resolve(tx_id, "done", reason="seen in the books", output={"paid": 1})
    assert datp.finish(tx_id).output == {"paid": 1, "booked": 1}
    assert sound.times("pay", tx_id) == 1


# The rebuild.


@pytest.mark.parametrize("is_asleep", [False, True], ids=["queued", "sleeping"])
def test_what_sql_calls_in_doubt_is_parked_after_a_loss_whatever_the_journal_says(
    datp: Kit, sound: World, is_asleep: bool
) -> None:
    """Redis was lost before the entry of the parking was drained."""
    tx_id = datp.submit("rest", {}) if is_asleep else sound.queued("hop")
    if not is_asleep:
        sound.run_one_hop()
    sound.archive()
    [summary] = datp.connections.record.summaries([tx_id])
    fence = int(sound.fields(tx_id)["fence"])
    assert datp.connections.record.mark(tx_id, fence, Status.IN_DOUBT, "the bank is silent")
    datp.clock.advance(seconds=1)
    sound.wipe()
    # A look must not bring it back as it was before.
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert datp.run_job("reconciler").rebuilt == 1
    assert (sound.status(tx_id), sound.fields(tx_id)["problem"]) == (
        "in-doubt",
        "the bank is silent",
    )
    assert [each.why for each in datp.operator.in_doubt()] == ["the bank is silent"]
    # Once more: the journal has no word of why.
    sound.archive()
    datp.clock.advance(seconds=1)
    sound.wipe()
    datp.run_job("reconciler")
    assert sound.fields(tx_id)["problem"] == "the bank is silent"
    assert sound.times("book", tx_id) == 1
    datp.operator.resolve(tx_id, "redo", reason="the bank has answered")
    assert datp.finish(tx_id).status is Status.SUCCESS
    assert summary.status is Status.QUEUED
