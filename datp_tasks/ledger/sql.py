"""How this room talks to PostgreSQL: short transactions, the database's clock, retried deadlocks.

A statement that stands alone is its own transaction, so a process that is paused between two
round trips holds no lock. Where two statements must be one transaction, PostgreSQL itself ends
it when its client falls silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from datp_tasks.clock import Clock

#: What stands for the time in a statement: `<now>` is read when a row is looked at, which is right
#: for a check under a lock that was waited for; `<moment>` once, so that an index can use it.
NOW = "coalesce(%(now)s::timestamptz, clock_timestamp())"
MOMENT = f"(SELECT {NOW})"

SILENT_MS = 5_000
TRIES_MAX = 5
#: Serialization failure and deadlock: nothing happened, the same statement may be sent again.
AGAIN = ("40001", "40P01")

T = TypeVar("T")


class Sql:
    def __init__(self, engine: Engine, alone: Engine, clock: Clock) -> None:
        """`alone` is an engine whose statements are transactions of their own."""
        self.engine = engine
        self._alone = alone
        self._clock = clock
        #: Counted for the benchmark and for tests.
        self.commits = 0

    def now(self) -> datetime | None:
        return self._clock.now()

    def run(self, statement: str, values: Mapping[str, Any] | None = None) -> list[Any]:
        """One statement, which is one transaction; its rows."""

        def once() -> list[Any]:
            with self._alone.connect() as connection:
                return self.rows(connection, statement, values)

        self.commits += 1
        return tried_again(once)

    def rows(
        self, connection: Connection, statement: str, values: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """One statement of a transaction; its rows."""
        result = connection.exec_driver_sql(statement, {"now": self.now(), **(values or {})})
        return list(result) if result.returns_rows else []

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Several statements that happen together, each with a snapshot of its own."""
        self.commits += 1
        with self.engine.begin() as connection:
            connection.exec_driver_sql(
                f"SET LOCAL idle_in_transaction_session_timeout = {SILENT_MS}"
            )
            yield connection


def timed(statement: str) -> str:
    """A statement with the time put in."""
    return statement.replace("<now>", NOW).replace("<moment>", MOMENT)


def tried_again(act: Callable[[], T]) -> T:
    """Once more after a deadlock, a few times at most."""
    for _ in range(TRIES_MAX - 1):
        try:
            return act()
        except DBAPIError as error:
            if getattr(error.orig, "pgcode", None) not in AGAIN:
                raise
    return act()
