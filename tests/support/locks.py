"""Locks that steps run into."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, text

LOCK = text("SELECT pg_advisory_xact_lock(:name)")


class Deadlock:
    """Two transactions that want the same two locks in different order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._has_second = threading.Event()
        self._thread = threading.Thread(target=self._other)

    def run_into(self, sql: Connection) -> None:
        """Raises what PostgreSQL says to the one that must give way: this one."""
        sql.execute(LOCK, {"name": 1})
        self._thread.start()
        assert self._has_second.wait(20)
        sql.execute(text("SET LOCAL lock_timeout = 0"))
        sql.execute(text("SET LOCAL deadlock_timeout = '10ms'"))
        sql.execute(LOCK, {"name": 2})

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _other(self) -> None:
        with self._engine.begin() as sql:
            sql.execute(text("SET LOCAL deadlock_timeout = '1h'"))
            sql.execute(LOCK, {"name": 2})
            self._has_second.set()
            sql.execute(LOCK, {"name": 1})


@contextmanager
def held_lock(engine: Engine, name: int) -> Iterator[Connection]:
    """Another transaction holds a lock; rolling it back sets the lock free."""
    with engine.connect() as holder:
        holder.execute(LOCK, {"name": name})
        yield holder
