"""Events: what a client is told of a transaction, numbered from 1 without a gap.

Progress reports are rows. The last event is the summary itself, as soon as that is final, so
ending a transaction writes no row more. A webhook, a long poll and this list tell the same
numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Engine

from datp_tasks.clock import Clock
from datp_tasks.model.payload import Json
from datp_tasks.model.sealed import masked
from datp_tasks.record.queries import Queries

#: What an event can be.
PROGRESS, FINAL = "progress", "final"


class Query(Queries, topic="events"):
    list_events: str
    last_news: str
    mark_notified: str
    cancel_webhooks: str


@dataclass(frozen=True, slots=True)
class Event:
    sequence: int
    #: `progress` or `final`.
    kind: str
    #: The report; of the last event the status, the output and the note.
    payload: Json
    created_at: datetime

    def masked(self) -> Event:
        """As those see it who may not see what is sealed."""
        if self.kind == FINAL:
            return replace(self, payload={**self.payload, "output": masked(self.payload["output"])})
        return replace(self, payload=masked(self.payload))


class EventStore:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def list(self, tx_id: str, *, after: int = 0, rows_max: int = 1_000) -> list[Event]:
        """What happened after that number, in order."""
        values = {"tx_id": tx_id, "after": after, "limit": rows_max}
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.list_events, values)
            return [
                Event(row.sequence, row.kind, json.loads(row.payload), row.created_at)
                for row in rows
            ]

    def last_news(self, tx_id: str) -> datetime | None:
        """When the record of a transaction last changed."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.last_news, {"tx_id": tx_id})
            found: datetime | None = rows.scalar()
        return found

    def mark_notified(self, tx_id: str, sequence: int, cancel_webhook: bool) -> int:
        """Its client has seen everything up to that number; how many webhooks need not be sent."""
        values = {"tx_id": tx_id, "sequence": sequence, "now": self._clock.now()}
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.mark_notified, values)
            if not cancel_webhook:
                return 0
            return connection.exec_driver_sql(Query.cancel_webhooks, values).rowcount
