"""How PostgreSQL finds the rows of a vector: at a cost that does not grow with the history."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import Connection

from datp_tasks.client.requests import new_tx_id
from datp_tasks.model.status import Status
from datp_tasks.record import effects, transactions
from datp_tasks.record.queries import FOLDER, load
from datp_tasks.record.record_types import Acceptance, Final
from datp_tasks.record.tables import tx_summary
from datp_tasks.testing import Kit

VECTOR = 100
#: What keeps the planner from the indexes of open rows, and how the condition would read else.
GUARD = re.compile(r"coalesce\((s\.)?completed_at, 'infinity'\) = 'infinity'")
BARE = r"\1completed_at IS NULL"
OPEN_ROWS = {
    index.name
    for index in tx_summary.indexes
    if str(index.dialect_options["postgresql"]["where"]) == "completed_at IS NULL"
}


def accepted(kit: Kit, number: int) -> list[str]:
    wanted = [
        Acceptance(
            tx_id=new_tx_id("07"),
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


def indexes_of(connection: Connection, query: str, values: Mapping[str, Any]) -> set[str]:
    """Those that the plan of a query's last statement reads."""
    statement = query.split(";")[-1]
    rows = connection.exec_driver_sql(f"EXPLAIN {statement}", dict(values))
    return set(re.findall(r"(?:using|Bitmap Index Scan on) (\w+)", "\n".join(r[0] for r in rows)))


@pytest.fixture
def without_vacuum(datp: Kit) -> Iterator[None]:
    def tell(what: str) -> None:
        with datp.connections.engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER TABLE tx_summary {what}")

    tell("SET (autovacuum_enabled = off)")
    yield
    tell("RESET (autovacuum_enabled)")


@pytest.mark.usefixtures("without_vacuum")
def test_ending_does_not_read_the_rows_that_have_ended_since_the_last_vacuum(datp: Kit) -> None:
    record = datp.connections.record
    for _ in range(20):
        record.finish_many(finals(accepted(datp, 500)))
    with record.engine.begin() as connection:
        # As autovacuum does it: the statistics then say that next to nothing is open.
        connection.exec_driver_sql("ANALYZE tx_summary")
    nothing = [None] * VECTOR
    values = {
        "tx_id": accepted(datp, VECTOR),
        "fence": [1] * VECTOR,
        "status": ["success"] * VECTOR,
        "output": ["{}"] * VECTOR,
        "note": nothing,
        "progress": nothing,
        "is_begun": [True] * VECTOR,
        "step_key": ["1"] * VECTOR,
        "now": None,
    }
    query = transactions.Query
    with record.engine.connect() as connection:
        for text in (query.finish, query.take_fences, query.raise_fences, effects.Query.hold):
            used = indexes_of(connection, text, values)
            assert used and not used & OPEN_ROWS, (used, text)
            # The history is one that leads the planner astray, or this would prove nothing.
            assert indexes_of(connection, GUARD.sub(BARE, text), values) & OPEN_ROWS, text


def test_no_query_looks_for_rows_by_their_ids_among_all_open_ones() -> None:
    queries = {
        f"{path.stem}.{name}": text
        for path in FOLDER.glob("*.sql")
        for name, text in load(path.stem).items()
        if "tx_id = ANY(%(tx_id)s)" in text
    }
    assert len([name for name, text in queries.items() if GUARD.search(text)]) > 5
    assert [name for name, text in queries.items() if "completed_at IS NULL" in text] == []
