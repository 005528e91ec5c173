"""What outside said to a transaction: switches and cancels, kept until it has ended.

A client is told that its switch is set when SQL has it. Redis may lose its last writes; then the
reconciler says it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine

from datp_tasks.clock import Clock

ADD = """
WITH added AS (
    INSERT INTO tx_signal (tx_id, name, value, created_at)
    SELECT tx_id, %(name)s, %(value)s, coalesce(%(now)s, now()) FROM tx_summary
    WHERE tx_id = %(tx_id)s AND coalesce(completed_at, 'infinity') = 'infinity'
    ON CONFLICT (tx_id, name) DO UPDATE
    SET value = excluded.value, created_at = excluded.created_at
)
SELECT tx_id, name, value FROM tx_signal WHERE tx_id = %(tx_id)s AND name = %(name)s
"""
# Only what was said: another client may have said something else since.
PUT_BACK = """
UPDATE tx_signal SET value = %(before)s
WHERE tx_id = %(tx_id)s AND name = %(name)s AND value = %(value)s
"""
WITHDRAW = """
DELETE FROM tx_signal WHERE tx_id = %(tx_id)s AND name = %(name)s AND value = %(value)s
"""
OF = "SELECT tx_id, name, value FROM tx_signal WHERE tx_id = ANY(%(tx_id)s) ORDER BY created_at"
RECENT = """
SELECT tx_id, name, value FROM tx_signal
WHERE created_at > coalesce(%(now)s, now()) - make_interval(secs => %(age_s)s)
ORDER BY created_at LIMIT %(limit)s
"""
FORGET = """
DELETE FROM tx_signal WHERE (tx_id, name) IN (
    SELECT g.tx_id, g.name FROM tx_signal g JOIN tx_summary t ON t.tx_id = g.tx_id
    WHERE t.completed_at IS NOT NULL LIMIT %(limit)s)
"""

#: The name under which a cancel is kept; no switch can be called that.
CANCEL = "!cancel"


@dataclass(frozen=True, slots=True)
class Signal:
    tx_id: str
    name: str
    #: The JSON of a switch, or how a cancelled transaction must end and why.
    value: str


class Signals:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def add(self, signal: Signal) -> Signal | None:
        """The one of that name before it. Nothing is kept for what has ended or is not known."""
        values = {"tx_id": signal.tx_id, "name": signal.name, "value": signal.value}
        with self._engine.begin() as connection:
            row = connection.exec_driver_sql(ADD, {**values, "now": self._now()}).first()
            return None if row is None else Signal(*row)

    def withdraw(self, signal: Signal, before: Signal | None) -> None:
        """It was refused, so it must not be said again; the one before it counts."""
        values = {"tx_id": signal.tx_id, "name": signal.name, "value": signal.value}
        with self._engine.begin() as connection:
            if before is None:
                connection.exec_driver_sql(WITHDRAW, values)
            else:
                connection.exec_driver_sql(PUT_BACK, {**values, "before": before.value})

    def of(self, tx_ids: Sequence[str]) -> list[Signal]:
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(OF, {"tx_id": list(tx_ids)})
            return [Signal(*row) for row in rows]

    def recent(self, *, age_s: float, rows_max: int) -> list[Signal]:
        values = {"age_s": age_s, "limit": rows_max, "now": self._now()}
        with self._engine.connect() as connection:
            return [Signal(*row) for row in connection.exec_driver_sql(RECENT, values)]

    def forget_ended(self, *, rows_max: int) -> int:
        """Those of transactions that have ended are of no use any more."""
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(FORGET, {"limit": rows_max}).rowcount

    def _now(self) -> datetime | None:
        return self._clock.now()
