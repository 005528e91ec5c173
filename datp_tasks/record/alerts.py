"""Alerts: what a person should look at. One is open per kind and subject, until it is cleared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.model.notes import clean_note

RAISE = """
INSERT INTO alert (kind, subject, summary, created_at)
VALUES (%(kind)s, %(subject)s, %(summary)s, coalesce(%(now)s, now()))
ON CONFLICT (kind, subject) WHERE cleared_at IS NULL DO NOTHING
RETURNING id
"""

CLEAR = """
UPDATE alert SET cleared_at = coalesce(%(now)s, now())
WHERE kind = %(kind)s AND subject = %(subject)s AND cleared_at IS NULL
RETURNING id
"""

OPEN = """
SELECT id, kind, subject, summary, created_at FROM alert
WHERE cleared_at IS NULL AND coalesce(kind = %(kind)s, true)
ORDER BY created_at, id LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Alert:
    id: int
    kind: str
    subject: str
    summary: str
    created_at: datetime


class Alerts:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def raise_alert(
        self, kind: str, subject: str, summary: str, *, connection: Connection | None = None
    ) -> bool:
        """Open an alert; False if one of this kind and subject is open already.

        With a connection it becomes part of that transaction.
        """
        values = {"kind": kind, "subject": subject, "summary": clean_note(summary)}
        return self._changes(RAISE, values, connection)

    def clear_alert(self, kind: str, subject: str, *, connection: Connection | None = None) -> bool:
        """Close the open alert of this kind and subject; False if there is none."""
        return self._changes(CLEAR, {"kind": kind, "subject": subject}, connection)

    def open_alerts(self, kind: str | None = None, *, rows_max: int = 1_000) -> list[Alert]:
        """Those that are open, oldest first."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(OPEN, {"kind": kind, "limit": rows_max})
            return [
                Alert(row.id, row.kind, row.subject, row.summary, row.created_at) for row in rows
            ]

    def _changes(self, sql: str, values: dict[str, str], connection: Connection | None) -> bool:
        now = self._clock.now()
        if connection is not None:
            return connection.exec_driver_sql(sql, {**values, "now": now}).first() is not None
        with self._engine.begin() as own:
            return own.exec_driver_sql(sql, {**values, "now": now}).first() is not None
