"""Events: what a client is told of a transaction, numbered from 1 without a gap.

Progress reports are rows. The last event is the summary itself, as soon as that is final, so
ending a transaction writes no row more. A webhook, a long poll and this list tell the same
numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine

from datp_tasks.clock import Clock
from datp_tasks.model.payload import Json

#: What an event can be.
PROGRESS, FINAL = "progress", "final"

LIST = """
SELECT sequence, kind, payload, created_at FROM tx_event
WHERE tx_id = %(tx_id)s AND sequence > %(after)s
UNION ALL
SELECT event_count + 1, 'final',
       json_build_object('status', status, 'output', output, 'note', note), completed_at
FROM tx_summary
WHERE tx_id = %(tx_id)s AND completed_at IS NOT NULL AND event_count + 1 > %(after)s
ORDER BY sequence LIMIT %(limit)s
"""

MARK_NOTIFIED = """
UPDATE tx_summary SET notified_at = coalesce(%(now)s, now())
WHERE tx_id = %(tx_id)s AND notified_at IS NULL
"""

# An attempt that is under way is not called back; it may still arrive.
CANCEL = """
UPDATE webhook_delivery
SET state = 'cancelled', finished_at = coalesce(%(now)s, now()), held = false
WHERE tx_id = %(tx_id)s AND sequence <= %(sequence)s AND state = 'pending'
"""


@dataclass(frozen=True, slots=True)
class Event:
    sequence: int
    #: `progress` or `final`.
    kind: str
    #: The report; of the last event the status, the output and the note.
    payload: Json
    created_at: datetime


class Events:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def list(self, tx_id: str, *, after: int = 0, rows_max: int = 1_000) -> list[Event]:
        """What happened after that number, in order."""
        values = {"tx_id": tx_id, "after": after, "limit": rows_max}
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(LIST, values)
            return [
                Event(row.sequence, row.kind, json.loads(row.payload), row.created_at)
                for row in rows
            ]

    def mark_notified(self, tx_id: str, sequence: int, cancel_webhook: bool) -> int:
        """Its client has seen everything up to that number; how many webhooks need not be sent."""
        values = {"tx_id": tx_id, "sequence": sequence, "now": self._clock.now()}
        with self._engine.begin() as connection:
            connection.exec_driver_sql(MARK_NOTIFIED, values)
            return connection.exec_driver_sql(CANCEL, values).rowcount if cancel_webhook else 0
