"""Dropping what is old: rows of transactions and batches that ended long ago.

Rows are deleted in bounded batches and by transaction. Partitions by time would be cheaper to
drop, but a journal can span months, and nothing of a transaction that goes on may be dropped.

A statement looks at a page of rows in the order of their time, and drops those of the page that
may go. What may not go yet is passed over, so that no number of them keeps others from going.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock

#: Time and name of the last row that was looked at.
Place = tuple[datetime | str, str]
BEGINNING: Place = ("-infinity", "")

_CUTOFF = "coalesce(%(now)s, now()) - make_interval(days => %(days)s)"

_PAGE = """
WITH page AS (
    SELECT <key> AS key, <moment> AS moment FROM <table>
    WHERE <moment> < <cutoff> AND (<moment>, <key>) > (%(moment)s::timestamptz, %(key)s)
    ORDER BY <moment>, <key> LIMIT %(limit)s
), <drop>
SELECT (SELECT count(*) FROM page) AS looked, (SELECT count(*) FROM gone) AS dropped,
       last.moment, last.key
FROM page last ORDER BY last.moment DESC, last.key DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is dropped together, by the time that says how old it is."""

    name: str
    sql: str
    #: What says how old it is stays, so the next run goes on where this one ended.
    marked: bool = False


def _kind(name: str, table: str, moment: str, key: str, drop: str, *, marked: bool = False) -> Kind:
    sql = _PAGE.replace("<drop>", drop).replace("<table>", table).replace("<cutoff>", _CUTOFF)
    return Kind(name, sql.replace("<moment>", moment).replace("<key>", key), marked)


def _of_ended(name: str, drop: str) -> Kind:
    return _kind(name, "tx_summary", "completed_at", "tx_id", drop, marked=True)


STATES = _kind(
    "states",
    "tx_state",
    "archived_at",
    "tx_id",
    """gone AS (
    DELETE FROM tx_state s USING page, tx_summary t
    WHERE s.tx_id = page.key AND t.tx_id = page.key AND t.completed_at < <cutoff> RETURNING 1
)""",
)
JOURNALS = _kind(
    "journals",
    "tx_journal",
    "recorded_at",
    "tx_id",
    """old AS (
    SELECT DISTINCT t.tx_id FROM page JOIN tx_summary t ON t.tx_id = page.key
    WHERE t.completed_at < <cutoff>
), begun AS (
    DELETE FROM step_begun b USING old WHERE b.tx_id = old.tx_id
), gone AS (
    DELETE FROM tx_journal j USING old WHERE j.tx_id = old.tx_id RETURNING 1
)""",
)
STATE_CHANGES = _of_ended(
    "state_changes",
    "gone AS (DELETE FROM tx_state_change c USING page WHERE c.tx_id = page.key RETURNING 1)",
)
EFFECTS = _of_ended(
    "effects",
    """begun AS (
    DELETE FROM step_begun b USING page WHERE b.tx_id = page.key
), gone AS (
    DELETE FROM step_effect e USING page WHERE e.tx_id = page.key RETURNING 1
)""",
)
EVENTS = _of_ended(
    "events", "gone AS (DELETE FROM tx_event e USING page WHERE e.tx_id = page.key RETURNING 1)"
)
WEBHOOKS = _kind(
    "webhooks",
    "webhook_delivery",
    "created_at",
    "id",
    """gone AS (
    DELETE FROM webhook_delivery d USING page, tx_summary t
    WHERE d.id = page.key AND d.finished_at < <cutoff>
      AND t.tx_id = d.tx_id AND t.completed_at < <cutoff> RETURNING d.id
), attempts AS (
    DELETE FROM webhook_attempt a USING gone WHERE a.delivery_id = gone.id
)""",
)
BATCHES = _kind(
    "batches",
    "ledger_batch",
    "final_at",
    "service_id || ' ' || batch_id",
    """gone AS (
    DELETE FROM ledger_batch b USING page
    WHERE b.service_id || ' ' || b.batch_id = page.key AND b.final_at = page.moment
      AND NOT EXISTS (SELECT 1 FROM tx_summary t
                      WHERE t.tx_id = b.tx_id AND t.completed_at IS NULL)
    RETURNING b.service_id, b.batch_id
), attempts AS (
    DELETE FROM batch_attempt a USING gone
    WHERE a.service_id = gone.service_id AND a.batch_id = gone.batch_id
), log AS (
    DELETE FROM batch_status l USING gone
    WHERE l.service_id = gone.service_id AND l.batch_id = gone.batch_id
)""",
)

ENDED = """
SELECT completed_at, tx_id FROM tx_summary
WHERE completed_at < <cutoff> AND (completed_at, tx_id) > (%(moment)s::timestamptz, %(key)s)
ORDER BY completed_at, tx_id LIMIT %(limit)s
""".replace("<cutoff>", _CUTOFF)

# One whose webhook is still to be delivered stays: its receiver will ask for the transaction.
SUMMARIES = """
WITH old AS MATERIALIZED (
    SELECT tx_id FROM tx_summary t
    WHERE tx_id = ANY(%(tx_id)s) AND completed_at < <cutoff> AND NOT EXISTS (
        SELECT 1 FROM webhook_delivery d WHERE d.tx_id = t.tx_id AND d.state = 'pending')
    ORDER BY tx_id FOR UPDATE
), states AS (DELETE FROM tx_state r USING old WHERE r.tx_id = old.tx_id
), journals AS (DELETE FROM tx_journal r USING old WHERE r.tx_id = old.tx_id
), changes AS (DELETE FROM tx_state_change r USING old WHERE r.tx_id = old.tx_id
), effects AS (DELETE FROM step_effect r USING old WHERE r.tx_id = old.tx_id
), begun AS (DELETE FROM step_begun r USING old WHERE r.tx_id = old.tx_id
), events AS (DELETE FROM tx_event r USING old WHERE r.tx_id = old.tx_id
), signals AS (DELETE FROM tx_signal r USING old WHERE r.tx_id = old.tx_id
), timeouts AS (DELETE FROM tx_timeout r USING old WHERE r.tx_id = old.tx_id
), deliveries AS (DELETE FROM webhook_delivery r USING old WHERE r.tx_id = old.tx_id RETURNING r.id
), attempts AS (DELETE FROM webhook_attempt r USING deliveries d WHERE r.delivery_id = d.id)
DELETE FROM tx_summary r USING old WHERE r.tx_id = old.tx_id
""".replace("<cutoff>", _CUTOFF)

MARK = "SELECT moment, tx_id FROM job_mark WHERE name = %(name)s FOR UPDATE"
SET_MARK = """
INSERT INTO job_mark (name, moment, tx_id) VALUES (%(name)s, %(moment)s, %(tx_id)s)
ON CONFLICT (name) DO UPDATE SET moment = excluded.moment, tx_id = excluded.tx_id
"""


@dataclass(frozen=True, slots=True)
class Dropped:
    """One batch: rows that were looked at and dropped, and where the next one goes on."""

    looked: int
    dropped: int
    after: Place


class Retention:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def drop(self, kind: Kind, *, days: int, batch_max: int, after: Place = BEGINNING) -> Dropped:
        """Drop what may go among the next rows of a kind."""
        with self._engine.begin() as connection:
            after = _marked(connection, kind) or after
            values = {"days": days, "limit": batch_max, "now": self._clock.now()}
            row = connection.exec_driver_sql(
                kind.sql, {**values, "moment": after[0], "key": after[1]}
            ).first()
            if row is None:
                return Dropped(0, 0, after)
            if kind.marked:
                mark = {"name": _mark_name(kind), "moment": row.moment, "tx_id": row.key}
                connection.exec_driver_sql(SET_MARK, mark)
            return Dropped(row.looked, row.dropped, (row.moment, row.key))

    def ended(self, *, days: int, batch_max: int, after: Place = BEGINNING) -> list[Place]:
        """Transactions that ended longer ago, from the one after `after` on."""
        values = {"days": days, "limit": batch_max, "now": self._clock.now()}
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(
                ENDED, {**values, "moment": after[0], "key": after[1]}
            )
            return [(row.completed_at, row.tx_id) for row in rows]

    def drop_summaries(self, tx_ids: Sequence[str], *, days: int) -> int:
        """Drop those of them that ended so long ago, with everything that belongs to them."""
        values = {"tx_id": list(tx_ids), "days": days, "now": self._clock.now()}
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(SUMMARIES, values).rowcount


def _mark_name(kind: Kind) -> str:
    return f"retention {kind.name}"


def _marked(connection: Connection, kind: Kind) -> Place | None:
    if not kind.marked:
        return None
    row = connection.exec_driver_sql(MARK, {"name": _mark_name(kind)}).first()
    return None if row is None else (row.moment, row.tx_id)
