"""A statement of its own: what SQLAlchemy would answer and raise, at half its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import DataError, IntegrityError, OperationalError

from datp_tasks.record.database import is_outage, make_engine
from datp_tasks.record.sole_statement import SoleStatements
from datp_tasks.testing import Kit

PID = "SELECT pg_backend_pid() AS pid"


def kill(datp: Kit, pid: int) -> None:
    with datp.connections.engine.connect() as connection:
        connection.exec_driver_sql("SELECT pg_terminate_backend(%(pid)s)", {"pid": pid}).all()


def test_rows_have_names_and_json_stays_text(sole: SoleStatements) -> None:
    [row] = sole.execute("SELECT %(n)s::int AS n, '{\"a\": 1.10}'::json AS data", {"n": 7})
    assert (row.n, row.data) == (7, '{"a": 1.10}')


def test_it_is_committed_and_the_connection_goes_back_as_it_was(
    sole: SoleStatements, engine: Engine
) -> None:
    [row] = sole.execute("INSERT INTO step_begun VALUES ('t', 'k', 1, now()) RETURNING tx_id", {})
    assert row.tx_id == "t"
    with engine.connect() as connection:
        # The same connection, and a transaction again: what it does not commit is undone.
        connection.exec_driver_sql("DELETE FROM step_begun")
    assert len(sole.execute("SELECT tx_id FROM step_begun", {})) == 1
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT 1 / 0 AS n", DataError),
        ("INSERT INTO step_begun VALUES (NULL, 'k', 1, now()) RETURNING tx_id", IntegrityError),
    ],
)
def test_an_error_is_sqlalchemys_without_values_and_leaves_the_connection(
    sole: SoleStatements, engine: Engine, sql: str, kind: type[Exception]
) -> None:
    before = sole.execute(PID, {})
    with pytest.raises(kind) as raised:
        sole.execute(sql, {"secret": "4711"})
    assert not getattr(raised.value, "connection_invalidated", True)
    assert "4711" not in str(raised.value)
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert sole.execute(PID, {}) == before


def test_a_lost_connection_is_said_once_and_the_next_one_is_new(
    datp: Kit, sole: SoleStatements, engine: Engine
) -> None:
    [row] = sole.execute(PID, {})
    kill(datp, row.pid)
    with pytest.raises(OperationalError) as raised:
        sole.execute(PID, {})
    assert raised.value.connection_invalidated and is_outage(raised.value)
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert sole.execute(PID, {}) != [row]


def test_a_server_that_is_not_there_is_an_outage(datp: Kit) -> None:
    url = "postgresql+psycopg2://datp@127.0.0.1:1/none"
    gone = make_engine(replace(datp.settings, database_url=url))
    with pytest.raises(OperationalError) as raised:
        SoleStatements(gone).execute(PID, {})
    assert is_outage(raised.value)


def test_what_interrupts_it_costs_the_connection(sole: SoleStatements, engine: Engine) -> None:
    before = sole.execute(PID, {})

    class Interrupted(BaseException):
        pass

    class Value:
        def __conform__(self, protocol: object) -> object:
            raise Interrupted

    with pytest.raises(Interrupted):
        sole.execute("SELECT %(n)s", {"n": Value()})
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert sole.execute(PID, {}) != before


def test_those_who_listen_to_statements_hear_it(sole: SoleStatements, engine: Engine) -> None:
    heard: list[str] = []

    def hear(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        heard.append(statement)

    event.listen(engine, "before_cursor_execute", hear)
    [row] = sole.execute(PID, {})
    event.remove(engine, "before_cursor_execute", hear)
    assert heard == [PID] and row.pid > 0
    sole.execute(PID, {})
    assert heard == [PID]
