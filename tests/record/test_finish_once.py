"""The one statement that ends transactions: it decides once, and only for the newest claim."""

from __future__ import annotations

from sqlalchemy import text

from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Final
from datp_tasks.testing import Kit
from tests.support.archive_world import World


def final(tx_id: str, fence: int, status: Status = Status.SUCCESS) -> Final:
    return Final(tx_id=tx_id, fence=fence, status=status, output_json=None, note=None)


def history(kit: Kit, tx_id: str) -> list[str]:
    query = "SELECT status FROM tx_state_change WHERE tx_id = :tx_id ORDER BY id"
    with kit.connections.engine.connect() as sql:
        return list(sql.execute(text(query), {"tx_id": tx_id}).scalars())


def test_what_is_final_stays_as_it_ended_whatever_comes_later(datp: Kit, world: World) -> None:
    record = datp.connections.record
    tx_id = world.queued("quick")
    assert record.finish_many([final(tx_id, 2_000)]) == {tx_id}
    [ended] = record.summaries([tx_id])
    # A newer claim is refused as well: what SQL has ended, no fence opens again.
    assert record.finish_many([final(tx_id, 3_000, Status.FAILED)]) == set()
    assert record.summaries([tx_id]) == [ended]
    assert history(datp, tx_id) == ["queued", "success"]


def test_an_older_claim_ends_nothing(datp: Kit, world: World) -> None:
    record = datp.connections.record
    tx_id = world.queued("quick")
    raised = record.raise_fences([(tx_id, 2_000)])[tx_id]
    assert record.finish_many([final(tx_id, 2_000)]) == set()
    assert record.summaries([tx_id])[0].status is Status.QUEUED
    assert record.finish_many([final(tx_id, raised)]) == {tx_id}


def test_only_an_end_under_the_same_fence_counts_as_ones_own(datp: Kit, world: World) -> None:
    """The answer to a commit may be lost, so the same order is given again."""
    record = datp.connections.record
    tx_id = world.queued("quick")
    assert record.finish_many([final(tx_id, 2_000)]) == {tx_id}
    assert record.finish_many([final(tx_id, 2_000)]) == {tx_id}
    assert record.finish_many([final(tx_id, 1_999)]) == set()
    assert record.finish_many([final(tx_id, 2_001)]) == set()
    assert history(datp, tx_id) == ["queued", "success"]


def test_a_fence_is_raised_above_the_one_that_is_named_and_not_above_a_newer_one(
    datp: Kit, world: World
) -> None:
    record = datp.connections.record
    tx_id = world.queued("quick")
    assert record.raise_fences([(tx_id, 2_000)]) == {tx_id: 2_001}
    # Repeating it changes nothing; whoever has seen only an older claim raises nothing.
    assert record.raise_fences([(tx_id, 2_000)]) == {tx_id: 2_001}
    assert record.raise_fences([(tx_id, 1_000)]) == {}
    assert record.summaries([tx_id])[0].fence == 2_001
