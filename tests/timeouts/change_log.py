"""Writes the log of state changes as the record does: in a commit, or in one that stays open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.record.timeouts import Due, Timeouts, Window
from datp_tasks.testing import Kit

ADD = """
INSERT INTO tx_state_change (tx_id, status, created_at, expires_at)
VALUES (%(tx_id)s, %(status)s, %(now)s, %(expires_at)s)
"""

MANY = 100_000


class ChangeLog:
    def __init__(self, kit: Kit) -> None:
        self.engine: Engine = kit.connections.engine
        self.timeouts = Timeouts(self.engine, kit.clock)
        self._clock = kit.clock

    @property
    def now(self) -> datetime:
        now = self._clock.now()
        assert now is not None
        return now

    def add(
        self, tx_id: str, *statuses: str, expires_in_s: float | None = 60.0, sql: Any = None
    ) -> None:
        """Rows of one transaction, in a commit of their own or as part of an open one."""
        expiry = None if expires_in_s is None else self.now + timedelta(seconds=expires_in_s)
        rows = [
            {"tx_id": tx_id, "status": status, "now": self.now, "expires_at": expiry}
            for status in statuses
        ]
        if sql is not None:
            _insert(sql, rows)
            return
        with self.engine.begin() as own:
            _insert(own, rows)

    @contextmanager
    def open_writer(self) -> Iterator[Connection]:
        """A writer that has not committed yet; it does when the block ends."""
        with self.engine.begin() as sql:
            yield sql

    def run_pass(self, rows_max: int = MANY, batch_max: int = MANY) -> tuple[Window, list[Due]]:
        return self.timeouts.run_pass(rows_max=rows_max, batch_max=batch_max, again_s=30.0)

    def read(self, rows_max: int = MANY) -> Window:
        return self.run_pass(rows_max)[0]

    def take_due(self) -> set[str]:
        return {due.tx_id for due in self.run_pass()[1]}

    def watched(self) -> list[str]:
        """The transactions that may expire, as the last pass knows them."""
        return [row.tx_id for row in self.select("SELECT tx_id FROM tx_timeout ORDER BY tx_id")]

    def select(self, query: str) -> Sequence[Any]:
        with self.engine.connect() as sql:
            return sql.exec_driver_sql(query).all()


def _insert(sql: Connection, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        sql.exec_driver_sql(ADD, row)
