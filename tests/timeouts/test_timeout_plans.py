"""No statement of the pass reads a whole table, however large: PostgreSQL's own plans say so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection

from datp_tasks.jobs import timeout_handler
from datp_tasks.model.status import FINAL
from datp_tasks.record import timeouts
from datp_tasks.settings import Settings
from datp_tasks.testing import Kit
from tests.timeouts.change_log import ChangeLog

#: Enough that reading everything would be the dear way.
ENDED, LIVE = 15_000, 20_000

#: Of many commits, as in life: the planner must not know that hardly anything is new.
FILL = f"""
INSERT INTO tx_state_change (tx_id, status, created_at, expires_at, xact)
SELECT 'ended' || n, unnest(ARRAY['queued', 'success']), %(now)s, %(now)s + interval '1 day',
       (3 + n %% 500)::text::xid8
FROM generate_series(1, {ENDED}) n;
INSERT INTO tx_state_change (tx_id, status, created_at, expires_at, xact)
SELECT 'live' || n, 'queued', %(now)s, %(now)s + interval '1 day', (3 + n %% 500)::text::xid8
FROM generate_series(1, {LIVE}) n;
"""

LARGE = {"tx_state_change", "tx_timeout", "tx_summary"}


@pytest.fixture
def filled(datp: Kit, log: ChangeLog) -> ChangeLog:
    """A long history that was read, many live transactions, and a little that is new."""
    with log.engine.begin() as sql:
        sql.exec_driver_sql(FILL, {"now": log.now})
    log.read()
    assert len(log.watched()) == LIVE
    log.add("live1", "success")
    log.add("new", "queued")
    with log.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as sql:
        sql.exec_driver_sql("ANALYZE tx_state_change, tx_timeout, tx_summary, segment")
    return log


def plan(sql: Connection, statement: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """All nodes of the plan that PostgreSQL makes."""
    found = sql.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", values).scalar_one()
    parsed = json.loads(found) if isinstance(found, str) else found
    return list(_nodes(parsed[0]["Plan"]))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def whole_tables(nodes: list[dict[str, Any]]) -> set[str]:
    return {
        node["Relation Name"]
        for node in nodes
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE
    }


STATEMENTS = {
    "PEEK": timeouts.Query.peek,
    "LOCK": timeouts.Query.lock_segment,
    "READ_WINDOW": timeouts.Query.read_window,
    "TAKE_DUE": timeouts.Query.take_due,
    "NOTE_ASKED": timeouts.Query.note_asked,
    "LOOK_AGAIN": timeouts.Query.look_again,
    "FORGET": timeouts.Query.forget,
}


#: Also with limits far above what is there: the planner takes them for what will come.
LIMITS = [(timeout_handler.WINDOW_MAX, timeout_handler.BATCH_MAX), (1_000_000, 100_000)]


@pytest.mark.parametrize(("rows_max", "batch_max"), LIMITS, ids=["usual limits", "high limits"])
def test_no_statement_reads_a_whole_table(filled: ChangeLog, rows_max: int, batch_max: int) -> None:
    with filled.engine.connect() as sql:
        at = sql.exec_driver_sql("SELECT xact::text, value FROM segment").one()
        values = {
            **timeouts.SEGMENT,
            "alert": timeouts.BEHIND,
            "now": filled.now,
            "xact": at.xact,
            "value": at.value,
            "rows_max": rows_max,
            "batch_max": batch_max,
            "again_s": Settings().timeout_retry_s,
            "final": [str(status) for status in FINAL],
            "tx_id": ["live1", "live2"],
            "asked": ["1:1", "2:2"],
        }
        read = {name: whole_tables(plan(sql, each, values)) for name, each in STATEMENTS.items()}
    assert read == {name: set() for name in STATEMENTS}


def test_the_check_itself_sees_a_whole_table(filled: ChangeLog) -> None:
    """The seed's clean-up, for example."""
    clean_up = """
    DELETE FROM tx_timeout t USING (
        SELECT c.tx_id, max(c.id) AS id FROM tx_timeout t1
        JOIN tx_state_change c ON c.tx_id = t1.tx_id GROUP BY c.tx_id) last
    JOIN tx_state_change c ON c.id = last.id
    WHERE last.tx_id = t.tx_id AND c.status = 'success'
    """
    with filled.engine.connect() as sql:
        assert "tx_timeout" in whole_tables(plan(sql, clean_up, {}))


def pages(sql: Connection, statement: str, values: dict[str, Any]) -> int:
    """How many pages PostgreSQL looks at when it runs the statement."""
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
    found = sql.exec_driver_sql(explain, values).scalar_one()
    top = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


def test_a_pass_touches_only_what_is_new(filled: ChangeLog) -> None:
    values = {
        **timeouts.SEGMENT,
        "now": filled.now,
        "rows_max": timeout_handler.WINDOW_MAX,
        "final": [str(status) for status in FINAL],
    }
    with filled.engine.begin() as sql:
        at = sql.exec_driver_sql(timeouts.Query.lock_segment, values).one()
        order = {**values, "xact": at.xact, "value": at.value}
        assert pages(sql, timeouts.Query.read_window, order) < 60
    assert filled.watched().count("new") == 1
    assert "live1" not in filled.watched()


def test_a_look_touches_a_handful_of_pages(filled: ChangeLog) -> None:
    values = {**timeouts.SEGMENT, "now": filled.now, "alert": timeouts.BEHIND}
    with filled.engine.connect() as sql:
        assert pages(sql, timeouts.Query.peek, values) < 15
    filled.read()
    with filled.engine.connect() as sql:
        assert pages(sql, timeouts.Query.peek, values) < 15
