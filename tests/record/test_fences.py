"""Fences in SQL: who may still change a transaction is decided there."""

from __future__ import annotations

import threading

from sqlalchemy import create_engine, text

from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Final
from datp_tasks.testing import Kit
from tests.support.archive_world import World
from tests.support.eventually import eventually


def fence_of(kit: Kit, tx_id: str) -> int:
    [row] = kit.connections.record.summaries([tx_id])
    return row.fence


def success(tx_id: str, fence: int) -> Final:
    return Final(tx_id=tx_id, fence=fence, status=Status.SUCCESS, output_json=None, note=None)


def test_fences_are_taken_in_one_commit_and_shut_out_older_claims(datp: Kit, world: World) -> None:
    record = datp.connections.record
    mine, newer = world.queued("quick"), world.queued("quick")
    ended = datp.submit("quick", {})
    record.raise_fences([(newer, 2_000)])
    before, fence = record.commits, fence_of(datp, ended)
    claims = [(newer, 2_000), (ended, 10**15), (mine, 2_000), ("t00-unknown", 1)]
    assert record.take_fences(claims) == {mine}
    assert record.commits == before + 1
    assert (fence_of(datp, mine), fence_of(datp, newer)) == (2_000, 2_001)
    assert fence_of(datp, ended) == fence
    # Again, as after a lost answer; and by a newer claim.
    assert record.take_fences([(mine, 2_000)]) == {mine}
    assert record.take_fences([(mine, 3_000)]) == {mine}
    assert record.take_fences([(mine, 2_000)]) == set()
    assert record.finish_many([success(mine, 2_999)]) == set()
    assert record.finish_many([success(mine, 3_000)]) == {mine}
    assert record.take_fences([]) == set()


def test_taking_a_fence_waits_for_the_holder_of_the_row_and_then_decides(
    datp: Kit, world: World
) -> None:
    """A row that is passed over would be a transaction whose holder is not known."""
    tx_id = world.queued("quick")
    record, answers = datp.connections.record, []
    with datp.connections.engine.begin() as holder:
        holder.execute(text("UPDATE tx_summary SET fence = 3 WHERE tx_id = :tx"), {"tx": tx_id})
        taker = threading.Thread(
            target=lambda: answers.extend([record.take_fences([(tx_id, 2)])]), daemon=True
        )
        taker.start()
        eventually(lambda: _waiting(world) == 1)
    taker.join(timeout=10)
    assert answers == [set()]
    assert fence_of(datp, tx_id) == 3


def _waiting(world: World) -> int:
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )
    return int(world.sql(query)[0][0])


def test_what_may_be_repeated_is_repeated_when_the_connection_breaks(
    datp: Kit, world: World
) -> None:
    """The server ends idle connections, as after a restart or a failover."""
    record, tx_id = datp.connections.record, world.queued("quick")
    _end_connections(datp)
    assert record.take_fences([(tx_id, 1_000)]) == {tx_id}
    _end_connections(datp)
    assert record.mark(tx_id, 1_000, Status.IN_DOUBT, "why")


def _end_connections(kit: Kit) -> None:
    """All that the pool of the kit has."""
    other = create_engine(kit.settings.database_url)
    with other.connect() as sql:
        sql.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    other.dispose()
