"""How PostgreSQL ends a vector of transactions: at a cost that does not grow with the history."""

from __future__ import annotations

from datp_tasks.client.requests import new_tx_id
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Acceptance, Final
from datp_tasks.record.transactions import Query
from datp_tasks.testing import Kit

VECTOR = 100


def accepted(kit: Kit, number: int) -> list[str]:
    wanted = [
        Acceptance(
            tx_id=new_tx_id("local", None, 16),
            owner="local",
            external_id=None,
            fingerprint="",
            pipeline="p",
            version="v",
            input_json="{}",
            metadata_json=None,
        )
        for _ in range(number)
    ]
    kit.connections.record.accept_many(wanted)
    return [each.tx_id for each in wanted]


def finals(tx_ids: list[str]) -> list[Final]:
    status = Status.SUCCESS
    return [
        Final(tx_id=tx_id, fence=1, status=status, output_json="{}", note=None) for tx_id in tx_ids
    ]


def test_ending_does_not_read_the_rows_that_have_ended_since_the_last_vacuum(datp: Kit) -> None:
    record = datp.connections.record
    with record.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE tx_summary SET (autovacuum_enabled = off)")
    for _ in range(20):
        record.finish_many(finals(accepted(datp, 500)))
    open_ids = accepted(datp, VECTOR)
    nothing = [None] * VECTOR
    values = {
        "tx_id": open_ids,
        "fence": [1] * VECTOR,
        "status": ["success"] * VECTOR,
        "output": ["{}"] * VECTOR,
        "note": nothing,
        "progress": nothing,
        "is_begun": [True] * VECTOR,
        "now": None,
    }
    with record.engine.connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS) {Query.finish}", values)
        plan = "\n".join(row[0] for row in rows)
        connection.rollback()
    with record.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE tx_summary RESET (autovacuum_enabled)")
    assert "Index Scan using tx_summary_pkey" in plan, plan
    assert "tx_summary_open" not in plan, plan
