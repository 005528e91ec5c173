"""What the tables on the way of a transaction cost: no index without a reader, few index writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, text

from datp_tasks.record import points, transactions
from datp_tasks.testing import Kit
from tests.record.test_finish_plan import accepted
from tests.record.test_queries import EXECUTED, QUERIES, numbered

#: Those that a transaction writes on its way.
HOT = ("tx_summary", "tx_state_change", "tx_journal", "tx_state", "step_effect", "step_begun")
INDEXES = text("SELECT indexname FROM pg_indexes WHERE tablename = ANY(:tables)")
UPDATES = text(
    "SELECT pg_stat_get_xact_tuples_updated('tx_summary'::regclass) AS rows,"
    " pg_stat_get_xact_tuples_hot_updated('tx_summary'::regclass) AS in_place"
)
#: As in life: many have ended, few of them badly, and few are open. The planner knows.
HISTORY = """
INSERT INTO tx_summary (tx_id, owner, external_id, fingerprint, pipeline, version, status, input,
                        created_at, completed_at, link_id)
SELECT 't' || n, 'owner' || n %% 10, 'e' || n, '', 'p', 'v',
       CASE WHEN n <= 20 THEN 'queued' WHEN n %% 50 = 0 THEN 'failed' ELSE 'success' END, '{}',
       now() - n * interval '1 second', CASE WHEN n > 20 THEN now() END,
       CASE WHEN n %% 100 = 0 THEN 'l' || n END
FROM generate_series(1, 5000) AS n;
ANALYZE tx_summary
"""
#: Of the rows of a page, as in life: transactions that are accepted together do not all change.
EVERY = 10


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


def read_indexes(connection: Connection) -> set[str]:
    """Those in which a query looks for something; a walk over all of one needs none."""
    connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
    connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
    driver = connection.connection.driver_connection
    assert driver is not None
    found: set[str] = set()
    with driver.cursor() as sql:
        for query in QUERIES:
            for statement in map(str.strip, str(query.values[0]).split(";")):
                if statement.startswith("COPY") or EXECUTED.match(statement):
                    continue
                sql.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {numbered(statement)}")
                for node in nodes(json.loads(sql.fetchone()[0])[0]["Plan"]):
                    found |= set(node.get("Conflict Arbiter Indexes", ()))
                    if "Index Cond" in node:
                        found.add(node["Index Name"])
    return found


def test_every_index_of_a_table_on_the_way_is_read_by_a_query(datp: Kit) -> None:
    with datp.connections.engine.connect() as connection:
        found = set(connection.execute(INDEXES, {"tables": list(HOT)}).scalars())
        assert len(found) > 2 * len(HOT)
        # What the tests before have left behind, and how large their tables were, does not decide.
        connection.exec_driver_sql(f"TRUNCATE {', '.join(HOT)}")
        connection.exec_driver_sql(HISTORY)
        assert found - read_indexes(connection) == set()
        connection.rollback()


@pytest.mark.parametrize("change", ["take_fences", "raise_fences", "report_progress", "pass_point"])
def test_what_changes_before_the_end_changes_in_place(datp: Kit, change: str) -> None:
    """A heap-only tuple: no index is written, and the next look at the page removes the old row."""
    tx_ids = accepted(datp, 200)[::EVERY]
    fences, kinds = [1] * len(tx_ids), ["final"] * len(tx_ids)
    vector = {"tx_id": tx_ids, "fence": fences, "kind": kinds, "now": None}
    single = [{"tx_id": each, "fence": 1, "progress": "{}", "now": None} for each in tx_ids]
    known = {**vars(transactions.Query), **vars(points.Query)}
    with datp.connections.engine.connect() as connection:
        for values in single if change == "report_progress" else [vector]:
            connection.exec_driver_sql(known[change], values)
        done = connection.execute(UPDATES).one()
        connection.rollback()
    assert (done.rows, done.in_place) == (len(tx_ids), len(tx_ids))
