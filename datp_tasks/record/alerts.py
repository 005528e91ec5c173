"""Alerts: what a person should look at. One is open per kind and subject, until it is cleared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.model.notes import clean_note
from datp_tasks.record.queries import Queries


class Query(Queries, topic="alerts"):
    raise_alert: str
    clear_alert: str
    open_one: str
    open_alerts: str
    recent: str


@dataclass(frozen=True, slots=True)
class Alert:
    id: int
    kind: str
    subject: str
    summary: str
    created_at: datetime
    cleared_at: datetime | None = None

    @property
    def is_cleared(self) -> bool:
        return self.cleared_at is not None


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
        return self._changes(Query.raise_alert, values, connection)

    def clear_alert(self, kind: str, subject: str, *, connection: Connection | None = None) -> bool:
        """Close the open alert of this kind and subject; False if there is none."""
        return self._changes(Query.clear_alert, {"kind": kind, "subject": subject}, connection)

    def open_one(self, alert_id: int, *, connection: Connection) -> tuple[str, str] | None:
        """Kind and subject of an alert that is open, held until the commit; None if it is not."""
        row = connection.exec_driver_sql(Query.open_one, {"id": alert_id}).first()
        return None if row is None else (row.kind, row.subject)

    def open_alerts(self, kind: str | None = None, *, rows_max: int = 1_000) -> list[Alert]:
        """Those that are open, oldest first."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.open_alerts, {"kind": kind, "limit": rows_max})
            return [
                Alert(row.id, row.kind, row.subject, row.summary, row.created_at) for row in rows
            ]

    def recent(self, since_s: float, *, rows_max: int) -> list[Alert]:
        """Those that were raised or cleared in the last seconds, in the order of their raising."""
        values = {"since_s": since_s, "limit": rows_max, "now": self._clock.now()}
        with self._engine.connect() as connection:
            return [
                Alert(row.id, row.kind, row.subject, row.summary, row.created_at, row.cleared_at)
                for row in connection.exec_driver_sql(Query.recent, values)
            ]

    def _changes(self, sql: str, values: dict[str, str], connection: Connection | None) -> bool:
        now = self._clock.now()
        if connection is not None:
            return connection.exec_driver_sql(sql, {**values, "now": now}).first() is not None
        with self._engine.begin() as own:
            return own.exec_driver_sql(sql, {**values, "now": now}).first() is not None
