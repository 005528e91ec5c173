"""How batches and claims use PostgreSQL: short transactions, its clock, retried deadlocks.

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
from datp_tasks.record.queries import Queries

#: A transaction whose client is silent for longer is ended by PostgreSQL.
SILENT_MS = 5_000
TRIES_MAX = 5
#: Serialization failure and deadlock: nothing happened, the same statement may be sent again.
AGAIN = ("40001", "40P01")

T = TypeVar("T")


class Query(Queries, topic="ledger_sql"):
    end_when_silent: str


class Sql:
    def __init__(self, engine: Engine, autocommit: Engine, clock: Clock) -> None:
        """`autocommit` is an engine whose statements are transactions of their own."""
        self.engine = engine
        self._autocommit = autocommit
        self._clock = clock
        #: Counted for the benchmark and for tests.
        self.commits = 0

    def now(self) -> datetime | None:
        return self._clock.now()

    def run(self, statement: str, values: Mapping[str, Any] | None = None) -> list[Any]:
        """One statement, which is one transaction; its rows."""

        def once() -> list[Any]:
            with self._autocommit.connect() as connection:
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
            connection.exec_driver_sql(Query.end_when_silent, {"silent_ms": SILENT_MS})
            yield connection


def tried_again(act: Callable[[], T]) -> T:
    """Once more after a deadlock, a few times at most."""
    for _ in range(TRIES_MAX - 1):
        try:
            return act()
        except DBAPIError as error:
            if getattr(error.orig, "pgcode", None) not in AGAIN:
                raise
    return act()
