"""Prepared statements: quicker where the server knows them, and right where it does not."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import IntegrityError

from datp_tasks.record import prepared as prepared_statements
from datp_tasks.record import sole_statement
from datp_tasks.record.prepared import PLAN_MAX_S, Plans, prepared
from datp_tasks.record.sole_statement import SoleStatements

BEGUN = """
INSERT INTO step_begun VALUES (%(tx_id)s, 'k', 1, coalesce(%(now)s, now())) RETURNING tx_id
"""
COUNT = "SELECT count(*) AS n FROM step_begun WHERE tx_id = %(tx_id)s"


def on_its_connection(engine: Engine, sql: str) -> list[Any]:
    """The pool has one connection, which the statements before have used."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        found = connection.exec_driver_sql(sql)
        return list(found.all()) if found.returns_rows else []


def known(engine: Engine) -> set[str]:
    rows = on_its_connection(engine, "SELECT name FROM pg_prepared_statements")
    return {row.name for row in rows}


def count(sole: SoleStatements, tx_id: str) -> int:
    [row] = sole.execute(COUNT, {"tx_id": tx_id})
    return int(row.n)


def sent_by(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> list[str]:
    """The texts that go to the server from now on, on a machine of any speed."""
    monkeypatch.setattr(prepared_statements, "PLAN_MAX_S", float("inf"))
    texts: list[str] = []
    execute = engine.dialect.do_execute

    def note(cursor: Any, text: str, values: Any, *more: Any) -> None:
        texts.append(text)
        execute(cursor, text, values, *more)

    monkeypatch.setattr(engine.dialect, "do_execute", note)
    return texts


def test_a_statement_is_sent_once_and_then_only_its_values(
    monkeypatch: pytest.MonkeyPatch, sole: SoleStatements, engine: Engine
) -> None:
    # A new connection is asked for its version first.
    on_its_connection(engine, "SELECT 1")
    texts = sent_by(monkeypatch, engine)
    for tx_id in ("a", "b", "c"):
        [row] = sole.execute(BEGUN, {"tx_id": tx_id, "now": None})
        assert row.tx_id == tx_id
    first, *rest = texts
    assert "INSERT" in first and rest == [prepared(BEGUN).execute] * 2
    assert [count(sole, tx_id) for tx_id in "abc"] == [1, 1, 1]
    assert {prepared(BEGUN).name, prepared(COUNT).name} <= known(engine)


def test_a_percent_sign_is_one(sole: SoleStatements) -> None:
    for _ in range(2):
        [row] = sole.execute("SELECT %(n)s::int %% 4 AS n, '5%%' AS text", {"n": 7})
        assert (row.n, row.text) == (3, "5%")


@pytest.mark.parametrize("forget", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_what_the_server_has_forgotten_is_done_once_and_prepared_anew(
    sole: SoleStatements, engine: Engine, forget: str
) -> None:
    sole.execute(BEGUN, {"tx_id": "before", "now": None})
    on_its_connection(engine, forget)
    [row] = sole.execute(BEGUN, {"tx_id": "after", "now": None})
    assert row.tx_id == "after" and count(sole, "after") == 1
    sole.execute(BEGUN, {"tx_id": "later", "now": None})
    assert prepared(BEGUN).name in known(engine)
    assert (count(sole, "before"), count(sole, "later")) == (1, 1)


def test_what_another_client_of_a_pooler_has_prepared_is_used(
    monkeypatch: pytest.MonkeyPatch, sole: SoleStatements, engine: Engine
) -> None:
    on_its_connection(engine, prepared(BEGUN).prepare)
    [row] = sole.execute(BEGUN, {"tx_id": "a", "now": None})
    assert row.tx_id == "a" and count(sole, "a") == 1
    texts = sent_by(monkeypatch, engine)
    sole.execute(BEGUN, {"tx_id": "b", "now": None})
    assert texts == [prepared(BEGUN).execute]


def test_other_statements_are_not_met_under_the_same_name() -> None:
    assert prepared(BEGUN).name != prepared(BEGUN + " ").name


def test_columns_that_change_their_type_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
    sole: SoleStatements,
    engine: Engine,
    request: pytest.FixtureRequest,
) -> None:
    on_its_connection(engine, "CREATE TABLE changing (n int); INSERT INTO changing VALUES (7)")
    request.addfinalizer(lambda: on_its_connection(engine, "DROP TABLE changing"))
    assert [row.n for row in sole.execute("SELECT n FROM changing", {})] == [7]
    on_its_connection(engine, "ALTER TABLE changing ALTER n TYPE text")
    for _ in range(2):
        assert [row.n for row in sole.execute("SELECT n FROM changing", {})] == ["7"]
    texts = sent_by(monkeypatch, engine)
    sole.execute("SELECT n FROM changing", {})
    assert texts == [prepared("SELECT n FROM changing").execute]


def test_an_error_of_a_prepared_statement_undoes_it_and_it_stays_prepared(
    monkeypatch: pytest.MonkeyPatch, sole: SoleStatements, engine: Engine
) -> None:
    for _ in range(2):
        with pytest.raises(IntegrityError):
            sole.execute(BEGUN, {"tx_id": None, "now": None})
    texts = sent_by(monkeypatch, engine)
    sole.execute(BEGUN, {"tx_id": "a", "now": None})
    assert count(sole, "a") == 1 and texts[0] == prepared(BEGUN).execute


def test_a_plan_for_an_empty_table_is_not_used_when_it_has_grown(
    monkeypatch: pytest.MonkeyPatch, sole: SoleStatements, engine: Engine
) -> None:
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    # As PostgreSQL decides by itself after some executions, but at once.
    on_its_connection(engine, "SET plan_cache_mode = force_generic_plan")
    on_its_connection(engine, "TRUNCATE step_begun; ANALYZE step_begun")
    count(sole, "t1")
    plan = f"EXPLAIN {prepared(COUNT).execute.replace('%(tx_id)s', chr(39) + 't1' + chr(39))}"
    on_its_connection(
        engine,
        "INSERT INTO step_begun SELECT 't' || n, 'k', 1, now() FROM generate_series(1, 20000) n",
    )
    assert "Seq Scan" in str(on_its_connection(engine, plan))
    now_s += PLAN_MAX_S + 0.1
    assert count(sole, "t1") == 1
    assert "Seq Scan" not in str(on_its_connection(engine, plan))


def test_plans_are_discarded_once_in_a_while() -> None:
    plans, statement = Plans(), prepared(COUNT)
    discard, prepare, execute = plans.text_for(statement, 100.0).split("; ")
    assert (discard, prepare, execute) == ("DISCARD PLANS", statement.prepare, statement.execute)
    assert plans.text_for(statement, 100.0 + PLAN_MAX_S) == statement.execute
    assert plans.text_for(statement, 100.1 + PLAN_MAX_S) == f"DISCARD PLANS; {statement.execute}"
    assert plans.text_for(statement, 100.2 + PLAN_MAX_S) == statement.execute


def test_a_pool_that_resets_connections_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sole: SoleStatements,
    engine: Engine,
) -> None:
    def reset(driver: Any, _record: Any) -> None:
        driver.autocommit = True
        with driver.cursor() as cursor:
            cursor.execute("DISCARD ALL")
        driver.autocommit = False

    monkeypatch.setattr(sole_statement, "MISSES_MAX", 3)
    event.listen(engine, "checkin", reset)
    with caplog.at_level(logging.WARNING):
        assert [count(sole, "none") for _ in range(12)] == [0] * 12
    assert [record.message for record in caplog.records] == [sole_statement.GIVEN_UP]
    texts = sent_by(monkeypatch, engine)
    assert count(sole, "none") == 0 and texts == [COUNT]


def test_now_and_then_a_miss_is_no_reason_to_give_up(
    monkeypatch: pytest.MonkeyPatch, sole: SoleStatements, engine: Engine
) -> None:
    monkeypatch.setattr(sole_statement, "MISSES_MAX", 1)
    for number in range(60):
        if number % 15 == 0:
            on_its_connection(engine, "DEALLOCATE ALL")
        count(sole, "none")
    texts = sent_by(monkeypatch, engine)
    count(sole, "none")
    assert texts == [prepared(COUNT).execute]
