"""The connection of a caller whose statements are awaited: psycopg's, or SQLAlchemy's with psycopg.

Accepting is written once, and waits for each statement. So it runs in a thread of its own, and its
statements are sent on the event loop, where the connection belongs.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from weakref import WeakSet

from datp_tasks.errors import CallerTransactionUnfit
from datp_tasks.record.caller_connection import (
    PsycopgConnection,
    Rows,
    is_psycopg,
    tell_commits_of,
    unfit,
)
from datp_tasks.record.caller_transaction import Query

T = TypeVar("T")
#: The driver of SQLAlchemy whose connections are taken.
DRIVER = "psycopg"
#: Connections over which a call is under way.
_IN_USE: WeakSet[Any] = WeakSet()


class CallerLeft(Exception):
    """The caller was cancelled; nothing more is sent over its connection."""


class AwaitedConnection(PsycopgConnection):
    """Is called in a thread, while its event loop runs in another one."""

    def __init__(self, driver: Any, *, is_begun: bool) -> None:
        self._awaited = _AwaitedStatements(driver)
        super().__init__(driver, is_begun=is_begun, statements=self._awaited)

    @contextmanager
    def for_undoing(self) -> Iterator[None]:
        with self._awaited.undoing():
            yield

    async def run(self, call: Callable[[], T]) -> T:
        """The call, in a thread. When this is over, nothing more is sent over the connection.

        All of it is undone if it fails or the caller is cancelled, also after its last statement.
        A cancel that comes while the savepoint is released finds none to go back to: PostgreSQL
        then fails the whole SQL transaction, and nothing of it can be committed.
        """
        send, driver = self._awaited.execute, self.driver
        if driver in _IN_USE:
            # Their savepoints would lie in each other, and the end of one would undo the other.
            raise CallerTransactionUnfit(
                "another submit_in_async is under way on this connection; await it first"
            )
        _IN_USE.add(driver)
        try:
            await _to_its_end(send(Query.savepoint_call))
            result = await self._run_in_thread(call)
            await _to_its_end(send(Query.release_call))
        except BaseException:
            if not self.is_closed():
                # Where this fails, PostgreSQL lets the SQL transaction only be rolled back.
                with suppress(sys.modules["psycopg"].Error):
                    await _to_its_end(send(Query.undo_call))
            raise
        finally:
            _IN_USE.discard(driver)
        return result

    async def _run_in_thread(self, call: Callable[[], T]) -> T:
        """A thread of its own for each: in a pool, callers that wait for an external id could keep
        the caller that holds it from its next submit."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def run() -> None:
            try:
                result = context.run(call)
            except BaseException as error:
                loop.call_soon_threadsafe(ended.set_exception, error)
            else:
                loop.call_soon_threadsafe(ended.set_result, result)

        threading.Thread(target=run, name="datp-submit-in", daemon=True).start()
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            # The caller will roll back next, and no statement may come after that.
            self._awaited.stop()
            while not ended.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({ended})
            ended.exception()
            raise


async def _to_its_end(statement: Coroutine[Any, Any, Rows]) -> None:
    """Also if the caller is cancelled meanwhile, who is told so after it."""
    sent = asyncio.ensure_future(statement)
    cancelled: asyncio.CancelledError | None = None
    while not sent.done():
        try:
            await asyncio.wait({sent})
        except asyncio.CancelledError as error:
            cancelled = error
    failed = sent.exception()
    if cancelled is not None:
        raise cancelled
    if failed is not None:
        raise failed


async def awaited_connection_of(given: object) -> AwaitedConnection:
    """What the caller gave, or CallerTransactionUnfit with what to do instead."""
    found: Any = given
    if is_psycopg(found, "AsyncConnection"):
        return AwaitedConnection(found, is_begun=not found.autocommit)
    asyncio_of = sys.modules.get("sqlalchemy.ext.asyncio")
    if asyncio_of is None:
        raise unfit(given, _instead(given))
    if isinstance(found, asyncio_of.AsyncSession | asyncio_of.async_scoped_session):
        found = await found.connection()
    if not isinstance(found, asyncio_of.AsyncConnection):
        raise unfit(given, _instead(given))
    if found.dialect.driver != DRIVER:
        raise CallerTransactionUnfit(
            f"submit_in_async needs SQLAlchemy with psycopg (postgresql+psycopg://…); this "
            f"connection uses {found.dialect.name}+{found.dialect.driver}. Do this SQL transaction "
            f"over an engine with psycopg, which may be beside the other one"
        )
    driver = (await found.get_raw_connection()).driver_connection
    connection = AwaitedConnection(driver, is_begun=not driver.autocommit)
    connection.check_open()
    # Statements go past SQLAlchemy, which would else not know that there is one to commit.
    if not found.in_transaction():
        await found.begin()
    connection.tells_commits_by(tell_commits_of(found.sync_connection))
    return connection


def _instead(connection: object) -> str:
    if type(connection).__module__.startswith("asyncpg"):
        return (
            ". Do this SQL transaction with psycopg.AsyncConnection, or with SQLAlchemy over it "
            "(postgresql+psycopg://…)"
        )
    if hasattr(connection, "commit") or hasattr(connection, "in_atomic_block"):
        return ". Its statements are not awaited: use `client.submit_in(connection, …)`"
    return ""


class _AwaitedStatements:
    """Statements of a thread, sent on the event loop."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._stopped = False
        self._undoing = False
        self._sent: Future[Rows] | None = None

    def exec_driver_sql(self, statement: str, parameters: Any = None) -> Rows:
        with self._lock:
            if self._stopped and not self._undoing:
                raise CallerLeft("the caller was cancelled")
            sent = self._sent = asyncio.run_coroutine_threadsafe(
                self.execute(statement, parameters), self._loop
            )
        return sent.result()

    def stop(self) -> None:
        """Give up the statement that is sent, if one is, and send no other but to undo."""
        with self._lock:
            self._stopped = True
            if self._sent is not None and not self._undoing:
                self._sent.cancel()

    @contextmanager
    def undoing(self) -> Iterator[None]:
        with self._lock:
            self._undoing = True
        try:
            yield
        finally:
            with self._lock:
                self._undoing = False

    async def execute(self, statement: str, parameters: Any = None) -> Rows:
        psycopg = sys.modules["psycopg"]
        factory = psycopg.rows.tuple_row
        async with psycopg.AsyncClientCursor(self._driver, row_factory=factory) as cursor:
            await cursor.execute(statement, parameters)
            if cursor.description is None:
                return Rows()
            rows = await cursor.fetchall()
            return Rows.of(cursor.description, lambda: rows)
