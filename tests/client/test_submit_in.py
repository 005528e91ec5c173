"""Submitting inside the caller's SQL transaction: accepted if, and only if, the caller commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import psycopg2
import psycopg2.extras
import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from datp_tasks import Pipeline, Request
from datp_tasks.client import submit_in
from datp_tasks.client.requests import Submitted
from datp_tasks.errors import (
    CallerTransactionUnfit,
    ExternalIdConflict,
    InputInvalid,
    PipelineUnknown,
    TransactionUnknown,
)
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.status import Status
from datp_tasks.record.table_rights import rights_sql
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings, environment
from datp_tasks.testing import Kit
from tests.support.eventually import eventually

Data = dict[str, Any]
SOON_S = 1.0


def runs_of_step(datp: Kit) -> list[str]:
    """The transactions for which the step `t/run` has run."""
    ran: list[str] = []

    @datp.step("t/run")
    def run(ctx: Any, data: Data) -> None:
        ran.append(ctx.tx_id)

    return ran


@pytest.fixture(autouse=True)
def runs(datp: Kit) -> list[str]:
    ran = runs_of_step(datp)
    datp.use(Pipeline("p").step("t/run").build())
    datp.use(Pipeline("hidden", sealed=True).step("t/run").build())
    return ran


@pytest.fixture
def orders(datp: Kit) -> Iterator[Engine]:
    """The caller's own engine, with a table of its own in the same database."""
    engine = create_engine(
        datp.settings.database_url,
        pool_size=40,
        max_overflow=0,
        pool_timeout=60,
    )
    with engine.begin() as sql:
        sql.execute(text("DROP TABLE IF EXISTS an_order"))
        sql.execute(text("CREATE TABLE an_order (id text PRIMARY KEY, tx_id text)"))
    yield engine
    with engine.begin() as sql:
        sql.execute(text("DROP TABLE an_order"))
    engine.dispose()


def rows(kit: Kit) -> int:
    with kit.connections.engine.connect() as sql:
        return int(sql.execute(text("SELECT count(*) FROM tx_summary")).scalar_one())


def plain_url(kit: Kit) -> str:
    return kit.settings.database_url.replace("+psycopg2", "")


def changed(settings: Settings) -> dict[str, Any]:
    """What another process must be told."""
    plain = Settings()
    names = [each.name for each in fields(settings)]
    return {n: getattr(settings, n) for n in names if getattr(settings, n) != getattr(plain, n)}


@contextmanager
def driver(kit: Kit, **options: Any) -> Iterator[Any]:
    connection = psycopg2.connect(plain_url(kit), **options)
    try:
        yield connection
    finally:
        connection.close()


# Commit and rollback.


def test_it_runs_after_the_commit_and_not_before(
    datp: Kit, orders: Engine, runs: list[str]
) -> None:
    with orders.begin() as sql:
        sql.execute(text("INSERT INTO an_order VALUES ('o1')"))
        submitted = datp.client.submit_in(sql, "p", {"a": 1}, owner="shop", external_id="o1")
        assert submitted.status is Status.QUEUED
        datp.advance(seconds=60)
        assert runs == []
        with pytest.raises(TransactionUnknown):
            datp.status(submitted.tx_id)
    datp.client.place_committed()
    assert runs == [submitted.tx_id]
    assert datp.status(submitted.tx_id).status is Status.SUCCESS


def test_rolled_back_nothing_exists(datp: Kit, orders: Engine, runs: list[str]) -> None:
    with orders.connect() as sql:
        datp.client.submit_in(sql, "p", {"a": 1}, external_id="o1")
        sql.rollback()
    datp.recover()
    assert (rows(datp), runs) == (0, [])
    assert datp.connections.live.sizes()["queuedZ"] == 0
    # And nothing keeps the external id.
    assert not datp.client.submit("p", {"a": 2}, external_id="o1").duplicate


def test_what_a_savepoint_took_back_does_not_run(
    datp: Kit, orders: Engine, runs: list[str]
) -> None:
    with orders.begin() as sql:
        kept = datp.client.submit_in(sql, "p", {"n": 1})
        part = sql.begin_nested()
        datp.client.submit_in(sql, "p", {"n": 2})
        part.rollback()
    datp.client.place_committed()
    datp.recover()
    assert runs == [kept.tx_id]
    assert rows(datp) == 1


def test_committed_and_killed_right_after_it_runs(datp: Kit, runs: list[str]) -> None:
    program = """
import os, signal, psycopg2
from datp_tasks import Client
client = Client.from_settings()
connection = psycopg2.connect(client._reader._record.engine.url.render_as_string(False)
                              .replace("+psycopg2", ""))
print(client.submit_in(connection, "p", {"a": 1}).tx_id, flush=True)
client._caller_submits._watch.close()
connection.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment(changed(datp.settings))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -9, ended.stderr
    assert runs == []
    datp.advance(seconds=10)
    assert runs == [ended.stdout.strip()]


def test_a_crash_between_commit_and_placing_only_delays(
    datp: Kit, orders: Engine, runs: list[str]
) -> None:
    with orders.begin() as sql:
        submitted = datp.client.submit_in(sql, "p", {})
    other = datp.another()
    other.advance(seconds=10)
    assert runs == [submitted.tx_id]
    # The one that was slow finds it done.
    datp.client.place_committed()
    assert runs == [submitted.tx_id]
    other.close()


def test_of_a_thousand_callers_exactly_those_that_commit_end(
    datp: Kit, orders: Engine, runs: list[str]
) -> None:
    """A thread for each of them, all of which are there before the first begins; the pool of the
    caller's program lets 40 SQL transactions be open at a time."""
    callers = 1_000
    all_there = threading.Barrier(callers)

    def call(number: int) -> str | None:
        all_there.wait(60)
        with orders.connect() as sql:
            name = f"o{number // 2}"
            sql.execute(text("INSERT INTO an_order VALUES (:id)"), {"id": f"{name}-{number}"})
            submitted = datp.client.submit_in(sql, "p", {"n": number}, external_id=f"x{number}")
            if number % 2:
                sql.rollback()
                return None
            sql.commit()
            return submitted.tx_id

    with ThreadPoolExecutor(callers) as pool:
        committed = {tx_id for tx_id in pool.map(call, range(callers)) if tx_id}
    datp.client.place_committed()
    datp.advance(seconds=10)
    assert len(committed) == callers // 2
    assert sorted(runs) == sorted(committed)
    with datp.connections.engine.connect() as sql:
        found = sql.execute(text("SELECT status, count(*) FROM tx_summary GROUP BY 1")).all()
    assert [tuple(row) for row in found] == [("success", callers // 2)]


# Soon.


@pytest.fixture
def watching(datp: Kit) -> Iterator[Any]:
    """A client with its thread, whose bells are noted."""
    rung: list[tuple[float, list[str]]] = []

    def send(step_type: str, pairs: list[tuple[str, int]], **_: Any) -> None:
        rung.append((time.monotonic(), [tx_id for tx_id, _ in pairs]))

    client = make_client(Container.open(datp.settings, clock=datp.clock, send=send))
    client.rung = rung  # type: ignore[attr-defined]
    yield client
    client.close()


def session_commits(kit: Kit, engine: Engine, client: Any) -> str:
    with Session(engine) as session:
        session.execute(text("INSERT INTO an_order VALUES ('o1')"))
        tx_id = client.submit_in(session, "p", {}).tx_id
        time.sleep(0.3)
        session.commit()
    return str(tx_id)


def connection_commits(kit: Kit, engine: Engine, client: Any) -> str:
    with engine.connect() as sql:
        tx_id = client.submit_in(sql, "p", {}).tx_id
        time.sleep(0.3)
        sql.commit()
    return str(tx_id)


def driver_commits(kit: Kit, engine: Engine, client: Any) -> str:
    with driver(kit) as connection:
        tx_id = client.submit_in(connection, "p", {}).tx_id
        connection.commit()
    return str(tx_id)


@pytest.mark.parametrize("commit", [session_commits, connection_commits, driver_commits])
def test_it_is_rung_for_within_milliseconds_of_the_commit(
    datp: Kit, orders: Engine, watching: Any, commit: Callable[[Kit, Engine, Any], str]
) -> None:
    tx_id = commit(datp, orders, watching)
    committed_s = time.monotonic()
    eventually(lambda: watching.rung)
    ((rung_s, rung),) = watching.rung
    assert rung == [tx_id]
    # Some 3 ms on a quiet machine.
    assert rung_s - committed_s < SOON_S


def test_the_thread_rests_when_nothing_is_pending(datp: Kit, orders: Engine, watching: Any) -> None:
    connection_commits(datp, orders, watching)
    eventually(lambda: watching.rung)
    asked: list[str] = []
    engine = watching._caller_submits._accepts._autocommit

    @event.listens_for(engine, "before_cursor_execute")
    def note(_: Any, __: Any, statement: str, *more: Any) -> None:
        asked.append(statement)

    time.sleep(0.3)
    assert asked == []


def test_listeners_of_a_connection_that_is_kept_do_not_add_up(
    datp: Kit, orders: Engine, watching: Any
) -> None:
    with orders.connect() as sql:
        for _ in range(5):
            watching.submit_in(sql, "p", {})
            sql.commit()
        assert len(list(sql.dispatch.commit)) == 1


# Kinds of connections.


def test_a_session_and_a_scoped_session(datp: Kit, orders: Engine, runs: list[str]) -> None:
    with Session(orders) as session, session.begin():
        first = datp.client.submit_in(session, "p", {})
    scoped = scoped_session(sessionmaker(orders))
    second = datp.client.submit_in(scoped, "p", {})
    scoped.commit()
    scoped.remove()
    datp.client.place_committed()
    assert sorted(runs) == sorted([first.tx_id, second.tx_id])


def test_a_connection_of_psycopg2_with_other_cursors(datp: Kit, runs: list[str]) -> None:
    with driver(datp, cursor_factory=psycopg2.extras.RealDictCursor) as connection:
        kept = datp.client.submit_in(connection, "p", {}, external_id="a")
        again = datp.client.submit_in(connection, "p", {}, external_id="a")
        connection.commit()
        assert again == Submitted(kept.tx_id, Status.QUEUED, duplicate=True)
    datp.client.place_committed()
    assert runs == [kept.tx_id]


def test_a_wrapper_of_django_over_psycopg2(datp: Kit, runs: list[str]) -> None:
    """The Django of the tests has psycopg 3; an older one is a wrapper like it around psycopg2."""
    told: list[Callable[[], None]] = []
    with driver(datp) as connection:
        connection.autocommit = True
        wrapper = SimpleNamespace(
            vendor="postgresql",
            connection=connection,
            ensure_connection=lambda: None,
            on_commit=told.append,
            in_atomic_block=False,
        )
        with pytest.raises(CallerTransactionUnfit, match="autocommit"):
            datp.client.submit_in(wrapper, "p", {})
        connection.autocommit, wrapper.in_atomic_block = False, True
        submitted = datp.client.submit_in(wrapper, "p", {})
        connection.commit()
        wrapper.connection = object()
        with pytest.raises(CallerTransactionUnfit, match="psycopg2 or psycopg"):
            datp.client.submit_in(wrapper, "p", {})
    datp.client.place_committed()
    assert runs == [submitted.tx_id]


def test_a_transactional_step_submits_in_its_own_commit(datp: Kit, runs: list[str]) -> None:
    @datp.step("t/order", transactional=True)
    def order(ctx: Any, data: Data) -> Data:
        return {"next": datp.client.submit_in(ctx.sql, "p", {}).tx_id}

    datp.use(Pipeline("orders").step("t/order").build())
    ended = datp.run("orders", {})
    datp.client.place_committed()
    assert ended.output == {"next": runs[0]}


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda kit, engine: "postgresql://…", "this is a builtins.str"),
        (lambda kit, engine: engine, "sqlalchemy.engine.base.Engine"),
        (lambda kit, engine: create_engine("sqlite://").connect(), r"uses sqlite\+pysqlite"),
        (lambda kit, engine: AsyncSession(), "AsyncSession.*await client.submit_in_async"),
    ],
)
def test_what_is_no_connection_to_postgresql_is_refused(
    datp: Kit, orders: Engine, use: Callable[[Kit, Engine], Any], words: str
) -> None:
    with pytest.raises(CallerTransactionUnfit, match=words):
        datp.client.submit_in(use(datp, orders), "p", {})


def test_autocommit_is_refused_because_nothing_could_be_rolled_back(
    datp: Kit, orders: Engine
) -> None:
    with driver(datp) as connection:
        connection.autocommit = True
        with pytest.raises(CallerTransactionUnfit, match="autocommit"):
            datp.client.submit_in(connection, "p", {})
        connection.cursor().execute("BEGIN")
        datp.client.submit_in(connection, "p", {})
        connection.cursor().execute("ROLLBACK")
    with (
        orders.connect().execution_options(isolation_level="AUTOCOMMIT") as sql,
        pytest.raises(CallerTransactionUnfit, match="autocommit"),
    ):
        datp.client.submit_in(sql, "p", {})
    assert rows(datp) == 0


def test_a_transaction_that_has_failed_is_refused(datp: Kit) -> None:
    with driver(datp) as connection:
        with pytest.raises(psycopg2.Error):
            connection.cursor().execute("SELECT 1 / 0")
        with pytest.raises(CallerTransactionUnfit, match="roll it back"):
            datp.client.submit_in(connection, "p", {})


def test_another_database_is_told_by_name(datp: Kit) -> None:
    with driver(datp, dbname="postgres") as connection:
        with pytest.raises(CallerTransactionUnfit, match=r"'postgres'.*no tables"):
            datp.client.submit_in(connection, "p", {})
        # And its transaction goes on.
        connection.cursor().execute("SELECT 1")


def test_tables_of_another_installation_are_refused(datp: Kit) -> None:
    with driver(datp) as connection:
        sql = connection.cursor()
        sql.execute("CREATE SCHEMA other; CREATE TABLE other.tx_summary (tx_id text)")
        sql.execute("SET LOCAL search_path TO other")
        with pytest.raises(CallerTransactionUnfit, match="other tables of DATP Tasks"):
            datp.client.submit_in(connection, "p", {})
        connection.rollback()


def test_a_role_with_the_rights_of_the_application_is_enough(datp: Kit, runs: list[str]) -> None:
    with driver(datp) as connection:
        sql = connection.cursor()
        sql.execute("CREATE ROLE shop_program")
        for statement in rights_sql("shop_program"):
            sql.execute(statement)
        sql.execute("SET LOCAL ROLE shop_program")
        submitted = datp.client.submit_in(connection, "p", {})
        sql.execute("RESET ROLE; DROP OWNED BY shop_program; DROP ROLE shop_program")
        connection.commit()
    datp.client.place_committed()
    assert runs == [submitted.tx_id]


# The same rules as outside.


def usable(sql: Connection) -> bool:
    return bool(sql.execute(text("SELECT 1")).scalar_one())


def test_what_is_refused_leaves_the_transaction_usable(datp: Kit, orders: Engine) -> None:
    with orders.begin() as sql:
        with pytest.raises(PipelineUnknown):
            datp.client.submit_in(sql, "none", {})
        with pytest.raises(InputInvalid):
            datp.client.submit_in(sql, "p", {"a": object()})
        assert usable(sql)
        answers = datp.client.submit_many_in(
            sql, [Request(pipeline="none", input={}), Request(pipeline="p", input={})]
        )
    assert isinstance(answers[0], PipelineUnknown)
    assert isinstance(answers[1], Submitted)
    assert rows(datp) == 1


def test_a_conflict_of_external_ids_leaves_the_transaction_usable(
    datp: Kit, orders: Engine
) -> None:
    before = datp.submit("p", {"a": 1}, external_id="o1")
    with orders.begin() as sql:
        with pytest.raises(ExternalIdConflict, match=before):
            datp.client.submit_in(sql, "p", {"a": 2}, external_id="o1")
        assert datp.client.submit_in(sql, "p", {"a": 1}, external_id="o1").duplicate
        sql.execute(text("INSERT INTO an_order VALUES ('o1')"))
    assert rows(datp) == 1


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_an_id_that_another_one_took_meanwhile_is_a_duplicate(
    datp: Kit, orders: Engine, level: str
) -> None:
    with orders.connect().execution_options(isolation_level=level) as sql:
        assert usable(sql)
        before = datp.submit("p", {"a": 1}, external_id="o1")
        answer = datp.client.submit_in(sql, "p", {"a": 1}, external_id="o1")
        assert (answer.tx_id, answer.duplicate) == (before, True)
        other = datp.client.submit_in(sql, "p", {}, external_id="o2")
        sql.commit()
    assert datp.status(other.tx_id).status is Status.QUEUED
    datp.client.place_committed()


def test_two_callers_of_one_external_id_have_one_transaction(
    datp: Kit, orders: Engine, runs: list[str]
) -> None:
    ready = threading.Event()
    answers: list[Submitted] = []

    def second() -> None:
        with orders.begin() as sql:
            ready.set()
            answers.append(datp.client.submit_in(sql, "p", {"a": 1}, external_id="o1"))

    with orders.begin() as sql:
        first = datp.client.submit_in(sql, "p", {"a": 1}, external_id="o1")
        thread = threading.Thread(target=second)
        thread.start()
        ready.wait(10)
        time.sleep(0.1)
        assert answers == []
    thread.join(10)
    assert [(each.tx_id, each.duplicate) for each in answers] == [(first.tx_id, True)]


def test_a_sealed_pipeline_rests_sealed(datp: Kit, orders: Engine) -> None:
    with orders.begin() as sql:
        submitted = datp.client.submit_in(sql, "hidden", {"card": "4111"}, owner="shop")
    with datp.connections.engine.connect() as own:
        stored = own.execute(text("SELECT input FROM tx_summary")).scalar_one()
    assert "4111" not in json.dumps(stored)
    datp.client.place_committed()
    assert datp.status(submitted.tx_id).input == {"card": "4111"}


def test_the_row_says_who_handed_it_in(datp: Kit, orders: Engine) -> None:
    actor = Actor(name="shop", owner="shop", role=Role.ADMIN)
    with orders.begin() as sql:
        submitted = datp.client.submit_in(sql, "p", {}, owner="shop", by=actor)
    datp.client.place_committed()
    assert datp.status(submitted.tx_id).submitted_by == "shop"


def test_beyond_the_limit_the_reconciler_starts_them(
    datp: Kit, orders: Engine, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit_in, "PENDING_MAX", 1)
    with orders.begin() as sql:
        requests = [Request(pipeline="p", input={"n": n}) for n in range(3)]
        answers = datp.client.submit_many_in(sql, requests)
    datp.client.place_committed()
    assert len(runs) == 1
    datp.advance(seconds=10)
    assert sorted(runs) == sorted(each.tx_id for each in answers if isinstance(each, Submitted))
