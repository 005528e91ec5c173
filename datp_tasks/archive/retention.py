"""Dropping what is old: archived states and journals of transactions that ended long ago.

Rows are deleted in bounded batches and by transaction. Partitions by time would be cheaper to
drop, but a journal can span months, and nothing of a transaction that goes on may be dropped.
"""

from __future__ import annotations

from sqlalchemy import Engine

from datp_tasks.clock import Clock

STATES = """
WITH old AS (
    SELECT s.tx_id FROM tx_state s JOIN tx_summary t ON t.tx_id = s.tx_id
    WHERE s.archived_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND t.completed_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
    ORDER BY s.archived_at LIMIT %(limit)s
)
DELETE FROM tx_state s USING old WHERE s.tx_id = old.tx_id
"""

JOURNALS = """
WITH old AS (
    SELECT j.tx_id FROM tx_journal j JOIN tx_summary t ON t.tx_id = j.tx_id
    WHERE j.recorded_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND t.completed_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
    ORDER BY j.recorded_at LIMIT %(limit)s
), begun AS (
    DELETE FROM step_begun b USING old WHERE b.tx_id = old.tx_id
)
DELETE FROM tx_journal j USING old WHERE j.tx_id = old.tx_id
"""


class Retention:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def drop_states(self, *, days: int, batch_max: int) -> int:
        return self._drop(STATES, days, batch_max)

    def drop_journals(self, *, days: int, batch_max: int) -> int:
        """All rows of a journal leave together, so that no chain is ever cut."""
        return self._drop(JOURNALS, days, batch_max)

    def _drop(self, sql: str, days: int, batch_max: int) -> int:
        now = self._clock.now()
        with self._engine.begin() as connection:
            values = {"days": days, "limit": batch_max, "now": now}
            return connection.exec_driver_sql(sql, values).rowcount
