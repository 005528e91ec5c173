"""`submit_in` over psycopg 3, and over connections whose statements are awaited."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from datp_tasks import Pipeline, Request
from datp_tasks.client import submit_in
from datp_tasks.client.requests import Submitted
from datp_tasks.errors import (
    CallerTransactionUnfit,
    DatabaseUnavailable,
    ExternalIdConflict,
    PipelineUnknown,
    TransactionUnknown,
)
from datp_tasks.failpoints import arm, disarm_all
from datp_tasks.model.status import Status
from datp_tasks.record.awaited_connection import _AwaitedStatements
from datp_tasks.record.caller_transaction import CallerAccepts, Query
from datp_tasks.settings import environment
from datp_tasks.testing import Kit
from tests.client.test_submit_in import changed, plain_url, rows, runs_of_step
from tests.support.eventually import eventually

Data = dict[str, Any]
Opener = Callable[[Kit], AbstractAsyncContextManager[Any]]
#: Longer than any of these tests takes on a busy machine.
LONG_S = 30.0


@pytest.fixture(autouse=True)
def runs(datp: Kit) -> list[str]:
    ran = runs_of_step(datp)
    datp.use(
        Pipeline("p", search={"n": {"from": "input.n", "type": "string"}}).step("t/run").build()
    )
    return ran


def psycopg_url(kit: Kit) -> str:
    return kit.settings.database_url.replace("+psycopg2", "+psycopg")


@contextmanager
def own(kit: Kit) -> Iterator[Any]:
    """A connection whose rows the caller wants as dictionaries."""
    connection = psycopg.connect(plain_url(kit), row_factory=dict_row)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def sqlalchemy_connection(kit: Kit) -> Iterator[Any]:
    engine = create_engine(psycopg_url(kit))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@contextmanager
def session(kit: Kit) -> Iterator[Any]:
    engine = create_engine(psycopg_url(kit))
    with Session(engine) as opened:
        yield opened
    engine.dispose()


KINDS = pytest.mark.parametrize("opened", [own, sqlalchemy_connection, session])


@KINDS
def test_it_runs_after_the_commit_and_not_before(
    datp: Kit, runs: list[str], opened: Callable[[Kit], Any]
) -> None:
    with opened(datp) as sql:
        submitted = datp.client.submit_in(sql, "p", {"n": "1"}, external_id='o"\\{1}')
        again = datp.client.submit_in(sql, "p", {"n": "1"}, external_id='o"\\{1}')
        assert again == Submitted(submitted.tx_id, Status.QUEUED, duplicate=True)
        datp.advance(seconds=60)
        with pytest.raises(TransactionUnknown):
            datp.status(submitted.tx_id)
        sql.commit()
    datp.client.place_committed()
    assert runs == [submitted.tx_id]
    ended = datp.status(submitted.tx_id)
    assert (ended.status, ended.input, ended.external_id) == (
        Status.SUCCESS,
        {"n": "1"},
        'o"\\{1}',
    )


@KINDS
def test_rolled_back_nothing_exists(
    datp: Kit, runs: list[str], opened: Callable[[Kit], Any]
) -> None:
    with opened(datp) as sql:
        datp.client.submit_in(sql, "p", {"n": "1"}, external_id="o1")
        sql.rollback()
    datp.recover()
    assert (rows(datp), runs) == (0, [])
    assert not datp.client.submit("p", {"n": "2"}, external_id="o1").duplicate


def test_a_block_of_psycopg_that_is_rolled_back_takes_its_transaction_along(
    datp: Kit, runs: list[str]
) -> None:
    with own(datp) as sql:
        sql.autocommit = True
        with sql.transaction():
            kept = datp.client.submit_in(sql, "p", {})
            with sql.transaction(force_rollback=True):
                datp.client.submit_in(sql, "p", {})
    datp.client.place_committed()
    datp.recover()
    assert (runs, rows(datp)) == ([kept.tx_id], 1)


@KINDS
def test_what_is_refused_leaves_the_transaction_usable(
    datp: Kit, opened: Callable[[Kit], Any]
) -> None:
    before = datp.submit("p", {"n": "1"}, external_id="o1")
    with opened(datp) as sql:
        with pytest.raises(PipelineUnknown):
            datp.client.submit_in(sql, "none", {})
        with pytest.raises(ExternalIdConflict, match=before):
            datp.client.submit_in(sql, "p", {"n": "2"}, external_id="o1")
        kept = datp.client.submit_in(sql, "p", {})
        sql.commit()
    datp.client.place_committed()
    assert datp.status(kept.tx_id).status is Status.SUCCESS


def test_an_id_that_another_one_took_meanwhile_is_a_duplicate_also_in_a_strict_isolation(
    datp: Kit,
) -> None:
    with own(datp) as sql:
        sql.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        sql.execute("SELECT 1")
        before = datp.submit("p", {"n": "1"}, external_id="o1")
        answer = datp.client.submit_in(sql, "p", {"n": "1"}, external_id="o1")
        assert (answer.tx_id, answer.duplicate) == (before, True)
        other = datp.client.submit_in(sql, "p", {})
        sql.commit()
    assert datp.status(other.tx_id).status is Status.QUEUED
    datp.client.place_committed()


def test_committed_and_killed_right_after_it_runs(datp: Kit, runs: list[str]) -> None:
    program = """
import asyncio, os, signal, sys, psycopg
from datp_tasks import Client
client = Client.from_settings()
async def main():
    connection = await psycopg.AsyncConnection.connect(sys.argv[1])
    print((await client.submit_in_async(connection, "p", {})).tx_id)
    with psycopg.connect(sys.argv[1]) as other:
        print(client.submit_in(other, "p", {}).tx_id, flush=True)
        client._caller_submits._watch.close()
    await connection.commit()
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, plain_url(datp)],
        env={**os.environ, **environment(changed(datp.settings))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -9, ended.stderr
    assert runs == []
    datp.advance(seconds=10)
    assert sorted(runs) == sorted(ended.stdout.split())


# Awaited.


@asynccontextmanager
async def own_awaited(kit: Kit) -> AsyncIterator[Any]:
    connection = await AsyncConnection.connect(plain_url(kit), row_factory=dict_row)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def sqlalchemy_awaited(kit: Kit) -> AsyncIterator[Any]:
    engine = create_async_engine(psycopg_url(kit))
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def session_awaited(kit: Kit) -> AsyncIterator[Any]:
    engine = create_async_engine(psycopg_url(kit))
    try:
        async with AsyncSession(engine) as opened:
            yield opened
    finally:
        await engine.dispose()


AWAITED = pytest.mark.parametrize("opened", [own_awaited, sqlalchemy_awaited, session_awaited])


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, LONG_S))


@AWAITED
def test_awaited_it_runs_exactly_if_the_caller_commits(
    datp: Kit, runs: list[str], opened: Opener
) -> None:
    async def test() -> None:
        async with opened(datp) as sql:
            dropped = await datp.client.submit_in_async(sql, "p", {}, external_id="o1")
            await sql.rollback()
            kept = await datp.client.submit_in_async(sql, "p", {"n": "1"}, external_id="o1")
            assert kept.tx_id != dropped.tx_id
            with pytest.raises(TransactionUnknown):
                datp.status(kept.tx_id)
            await sql.commit()
        datp.client.place_committed()
        datp.recover()
        assert (runs, rows(datp)) == ([kept.tx_id], 1)

    run(test())


@AWAITED
def test_awaited_what_is_refused_leaves_the_transaction_usable(datp: Kit, opened: Opener) -> None:
    async def test() -> None:
        async with opened(datp) as sql:
            with pytest.raises(PipelineUnknown):
                await datp.client.submit_in_async(sql, "none", {})
            requests = [Request(pipeline="none", input={}), Request(pipeline="p", input={})]
            answers = await datp.client.submit_many_in_async(sql, requests)
            await sql.commit()
        assert isinstance(answers[0], PipelineUnknown)
        assert isinstance(answers[1], Submitted)
        assert rows(datp) == 1

    run(test())


def test_the_event_loop_goes_on_while_an_external_id_is_waited_for(datp: Kit) -> None:
    """And all callers but one may wait for it: they do not keep that one from its next submit."""
    waiters = 20

    async def test() -> None:
        async with own_awaited(datp) as holder:
            first = await datp.client.submit_in_async(holder, "p", {}, external_id="o1")

            async def wait_for_it() -> Submitted:
                async with own_awaited(datp) as sql:
                    return await datp.client.submit_in_async(sql, "p", {}, external_id="o1")

            waiting = [asyncio.create_task(wait_for_it()) for _ in range(waiters)]
            await asyncio.to_thread(eventually, lambda: blocked(datp) == waiters)
            await datp.client.submit_in_async(holder, "p", {}, external_id="o2")
            await holder.commit()
            answers = await asyncio.gather(*waiting)
        assert {(each.tx_id, each.duplicate) for each in answers} == {(first.tx_id, True)}

    run(test())


def blocked(kit: Kit) -> int:
    """How many wait for the transaction of another one."""
    with kit.connections.engine.connect() as sql:
        query = (
            "SELECT count(*) FROM pg_locks "
            "JOIN pg_stat_activity a USING (pid) "
            "WHERE NOT granted AND locktype = 'transactionid' AND a.datname = current_database()"
        )
        return int(sql.execute(text(query)).scalar_one())


@AWAITED
def test_a_caller_that_is_cancelled_has_sent_nothing(
    datp: Kit, runs: list[str], opened: Opener
) -> None:
    """It waits for an external id, is cancelled and commits what else it had: that was usable, and
    nothing was accepted in it."""

    async def test() -> None:
        async with own_awaited(datp) as holder, opened(datp) as sql:
            first = await datp.client.submit_in_async(holder, "p", {}, external_id="o1")
            before = await datp.client.submit_in_async(sql, "p", {})
            requests = [
                Request(pipeline="p", input={}, external_id="o0"),
                Request(pipeline="p", input={}, external_id="o1"),
            ]
            waiting = asyncio.create_task(datp.client.submit_many_in_async(sql, requests))
            await asyncio.to_thread(eventually, lambda: blocked(datp) == 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await sql.commit()
            await holder.commit()
        datp.client.place_committed()
        datp.recover()
        assert sorted(runs) == sorted([first.tx_id, before.tx_id])

    run(test())


@AWAITED
@pytest.mark.parametrize("batches", [1, 2])
def test_a_cancel_after_the_last_statement_undoes_every_batch(
    datp: Kit, monkeypatch: pytest.MonkeyPatch, opened: Opener, batches: int
) -> None:
    """The cancel comes when one batch is accepted, or all are: the caller commits, and none is."""
    monkeypatch.setattr(submit_in, "BATCH_MAX", 1)
    reached, may_continue = threading.Event(), threading.Event()

    def stop() -> None:
        reached.set()
        may_continue.wait(LONG_S)

    async def test() -> None:
        async with opened(datp) as sql:
            before = await datp.client.submit_in_async(sql, "p", {})
            arm("submit_in.after_accept", stop)
            requests = [Request(pipeline="p", input={})] * batches
            waiting = asyncio.create_task(datp.client.submit_many_in_async(sql, requests))
            await asyncio.to_thread(reached.wait, LONG_S)
            waiting.cancel()
            # The cancel reaches the call, and only then does its thread continue.
            await asyncio.sleep(0.01)
            may_continue.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            disarm_all()
            await sql.commit()
        assert rows(datp) == 1
        assert datp.status(before.tx_id).status is Status.QUEUED

    run(test())


def test_a_call_of_several_batches_that_fails_has_accepted_none(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller notes that nothing was submitted, and commits that."""
    monkeypatch.setattr(submit_in, "BATCH_MAX", 1)
    accept = CallerAccepts.accept
    calls: list[int] = []

    def fail_at_second(self: CallerAccepts, *given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise DatabaseUnavailable("a statement took too long")
        return accept(self, *given)

    monkeypatch.setattr(CallerAccepts, "accept", fail_at_second)
    with psycopg.connect(plain_url(datp)) as sql:
        with pytest.raises(DatabaseUnavailable):
            datp.client.submit_many_in(sql, [Request(pipeline="p", input={})] * 3)
        sql.commit()
    assert (len(calls), rows(datp)) == (2, 0)


@AWAITED
def test_a_second_call_on_a_connection_is_refused_while_one_is_under_way(
    datp: Kit, opened: Opener
) -> None:
    """Their savepoints would lie in each other: one that is undone would take the other along."""

    async def test() -> None:
        async with opened(datp) as sql:
            first = datp.client.submit_in_async(sql, "p", {})
            second = datp.client.submit_in_async(sql, "p", {})
            answers = await asyncio.gather(first, second, return_exceptions=True)
            # A session of SQLAlchemy refuses it by itself.
            refusals = [each for each in answers if isinstance(each, Exception)]
            assert (len(answers), len(refusals)) == (2, 1)
            await sql.commit()
        assert rows(datp) == 1

    run(test())


def test_a_cancel_while_the_call_ends_leaves_nothing_that_can_be_committed(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its savepoint is released by then, so the whole SQL transaction fails."""
    execute = _AwaitedStatements.execute

    async def test() -> None:
        async with own_awaited(datp) as sql:
            waiting: asyncio.Task[Any]

            async def release(self: Any, statement: str, parameters: Any = None) -> Any:
                found = await execute(self, statement, parameters)
                if statement == Query.release_call:
                    waiting.cancel()
                    await asyncio.sleep(0)
                return found

            monkeypatch.setattr(_AwaitedStatements, "execute", release)
            waiting = asyncio.create_task(datp.client.submit_in_async(sql, "p", {}))
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert sql.info.transaction_status is psycopg.pq.TransactionStatus.INERROR
            await sql.commit()
        assert rows(datp) == 0

    run(test())


def test_of_many_tasks_exactly_those_that_commit_end(datp: Kit, runs: list[str]) -> None:
    callers = 40

    async def call(number: int) -> str | None:
        async with own_awaited(datp) as sql:
            submitted = await datp.client.submit_in_async(sql, "p", {"n": str(number)})
            if number % 2:
                await sql.rollback()
                return None
            await sql.commit()
            return submitted.tx_id

    async def test() -> None:
        answers = await asyncio.gather(*map(call, range(callers)))
        datp.client.place_committed()
        datp.recover()
        assert sorted(runs) == sorted(each for each in answers if each)
        assert (len(runs), rows(datp)) == (callers // 2, callers // 2)

    run(test())


# What is refused.


def test_what_cannot_be_rolled_back_is_refused(datp: Kit) -> None:
    async def test() -> None:
        async with own_awaited(datp) as sql:
            await sql.set_autocommit(True)
            with pytest.raises(CallerTransactionUnfit, match="autocommit"):
                await datp.client.submit_in_async(sql, "p", {})
            await sql.set_autocommit(False)
            async with sql.cursor() as cursor:
                async for _ in cursor.stream("SELECT generate_series(1, 2)"):
                    with pytest.raises(CallerTransactionUnfit, match="is still being read"):
                        await asyncio.wait_for(datp.client.submit_in_async(sql, "p", {}), 5)
        engine = create_async_engine(psycopg_url(datp), isolation_level="AUTOCOMMIT")
        async with engine.connect() as alone:
            with pytest.raises(CallerTransactionUnfit, match="autocommit"):
                await datp.client.submit_in_async(alone, "p", {})
            assert not alone.in_transaction()
        await engine.dispose()

    run(test())
    with own(datp) as sql:
        with pytest.raises(psycopg.Error):
            sql.execute("SELECT 1 / 0")
        with pytest.raises(CallerTransactionUnfit, match="roll it back"):
            datp.client.submit_in(sql, "p", {})
        sql.rollback()
        with sql.pipeline(), pytest.raises(CallerTransactionUnfit, match="pipeline mode"):
            datp.client.submit_in(sql, "p", {})
        sql.rollback()
        sql.autocommit = True
        with pytest.raises(CallerTransactionUnfit, match="autocommit"):
            datp.client.submit_in(sql, "p", {})
    engine = create_engine(psycopg_url(datp), isolation_level="AUTOCOMMIT")
    with engine.connect() as alone:
        with pytest.raises(CallerTransactionUnfit, match="autocommit"):
            datp.client.submit_in(alone, "p", {})
        assert not alone.in_transaction()
    engine.dispose()
    assert rows(datp) == 0


def test_the_other_kind_of_connection_is_told_of_the_other_method(datp: Kit) -> None:
    async def test() -> None:
        async with own_awaited(datp) as sql:
            with pytest.raises(CallerTransactionUnfit, match=r"await client\.submit_in_async"):
                datp.client.submit_in(sql, "p", {})
        with (
            own(datp) as plain,
            pytest.raises(CallerTransactionUnfit, match=r"use `client\.submit_in\("),
        ):
            await datp.client.submit_in_async(plain, "p", {})
        of_asyncpg = type("Connection", (), {"__module__": "asyncpg.connection"})()
        with pytest.raises(CallerTransactionUnfit, match=r"psycopg\.AsyncConnection"):
            await datp.client.submit_in_async(of_asyncpg, "p", {})

    run(test())
