"""Which transactions may expire: one incremental pass over the log of state changes.

The log only grows, so a pass reads what is new since the last one and no more:

    lock the segment → read the window of new rows → add transactions still in process to
    `tx_timeout`, remove those that are final → advance the segment → take what is due → commit

Rows become visible in the order of commits, not in the order of ids: a row can appear behind
one that was read before. So the window ends where the oldest transaction that still runs began
(`pg_snapshot_xmin`), and its order is that of transaction ids; nothing can appear behind it.

A row of `tx_timeout` stays until the log says that its transaction is final. Whoever takes a due
one and dies has only delayed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.failpoints import reach
from datp_tasks.model.status import FINAL

#: The kind of alert that is open while the handler is too far behind.
BEHIND = "timeouts-behind"

SEGMENT = {"segment_type": "timeout", "enumeration": 0, "table_name": "tx_state_change"}

_THIS_SEGMENT = """
segment_type = %(segment_type)s AND enumeration = %(enumeration)s AND table_name = %(table_name)s
"""

# `expires_at IS NOT NULL` is the condition of the index that all of this lives on: transactions
# without an expiry cost nothing here. The smallest `due_at` is asked for instead of EXISTS, so
# that the index answers, however many are due.
PEEK = f"""
SELECT n.created_at IS NOT NULL AND n.xact < pg_snapshot_xmin(pg_current_snapshot()) AS is_new,
       coalesce((SELECT due_at FROM tx_timeout ORDER BY due_at LIMIT 1)
                <= coalesce(%(now)s, now()), false) AS is_due,
       EXISTS (SELECT 1 FROM alert WHERE kind = %(alert)s AND cleared_at IS NULL) AS is_alarmed,
       coalesce(extract(epoch FROM coalesce(%(now)s, now()) - n.created_at), 0)::float AS lag_s
FROM (VALUES (1)) AS one
LEFT JOIN segment g ON {_THIS_SEGMENT}
LEFT JOIN LATERAL (
    SELECT c.xact, c.created_at FROM tx_state_change c
    WHERE c.expires_at IS NOT NULL
      AND (c.xact, c.id) > (coalesce(g.xact, '0'), coalesce(g.value, 0))
    ORDER BY c.xact, c.id LIMIT 1
) n ON true
"""  # noqa: S608 (constants only)

# Its own statement, so that the next one sees everything that the holder before has committed.
LOCK = f"""
SELECT xact::text, value FROM segment WHERE {_THIS_SEGMENT} FOR UPDATE SKIP LOCKED
"""  # noqa: S608 (constants only)

FIRST_LOCK = """
INSERT INTO segment (segment_type, enumeration, table_name, xact, value, changed_at)
VALUES (%(segment_type)s, %(enumeration)s, %(table_name)s, '0', 0, coalesce(%(now)s, now()))
ON CONFLICT DO NOTHING
RETURNING xact::text, value
"""

# A final status is never followed by another one, so "one of its rows is final" is its latest
# state, in whatever order the rows come. Ids are handed on as arrays: for a join the planner,
# which cannot know how few they are, would read all of `tx_timeout`.
READ_WINDOW = f"""
WITH win AS MATERIALIZED (
    SELECT xact, id, tx_id, status, expires_at FROM tx_state_change
    WHERE expires_at IS NOT NULL
      AND (xact, id) > (%(xact)s::xid8, %(value)s)
      AND xact < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY xact, id LIMIT %(rows_max)s
), latest AS MATERIALIZED (
    SELECT tx_id, min(expires_at) AS expires_at, bool_or(status = ANY(%(final)s)) AS ended
    FROM win GROUP BY tx_id
), added AS (
    INSERT INTO tx_timeout (tx_id, expires_at, due_at, created_at)
    SELECT tx_id, expires_at, expires_at, coalesce(%(now)s, now()) FROM latest WHERE NOT ended
    ON CONFLICT (tx_id) DO NOTHING
    RETURNING 1
), removed AS (
    DELETE FROM tx_timeout WHERE tx_id = ANY(ARRAY(SELECT tx_id FROM latest WHERE ended))
    RETURNING 1
), advanced AS (
    UPDATE segment SET xact = e.xact, value = e.id, changed_at = coalesce(%(now)s, now())
    FROM (SELECT xact, id FROM win ORDER BY xact DESC, id DESC LIMIT 1) e
    WHERE {_THIS_SEGMENT}
)
SELECT (SELECT count(*) FROM win) AS rows, (SELECT count(*) FROM added) AS added,
       (SELECT count(*) FROM removed) AS removed
"""  # noqa: S608 (constants only)

TAKE_DUE = """
WITH due AS MATERIALIZED (
    SELECT tx_id FROM tx_timeout WHERE due_at <= coalesce(%(now)s, now())
    ORDER BY due_at LIMIT %(batch_max)s FOR UPDATE SKIP LOCKED
)
UPDATE tx_timeout
SET due_at = coalesce(%(now)s, now()) + make_interval(secs => %(again_s)s)
WHERE tx_id = ANY(ARRAY(SELECT tx_id FROM due))
RETURNING tx_id, expires_at, asked,
          extract(epoch FROM coalesce(%(now)s, now()) - asked_at)::float AS asked_ago_s
"""

# Of all statements that touch many rows, only the reader of the window ever waits for a row: so
# no two of them can wait for each other.
NOTE_ASKED = """
WITH free AS MATERIALIZED (
    SELECT tx_id FROM tx_timeout WHERE tx_id = ANY(%(tx_id)s) AND asked IS NULL
    FOR UPDATE SKIP LOCKED
)
UPDATE tx_timeout t SET asked = v.asked, asked_at = coalesce(%(now)s, now())
FROM free JOIN unnest(%(tx_id)s::text[], %(asked)s::text[]) AS v (tx_id, asked)
  ON v.tx_id = free.tx_id
WHERE t.tx_id = free.tx_id
"""

STANDING = f"""
SELECT coalesce(max(value), 0) AS value, coalesce(max(xact), '0')::text AS xact,
       max(changed_at) AS changed_at, (SELECT count(*) FROM tx_timeout) AS watched,
       (SELECT count(*) FROM tx_timeout WHERE due_at <= coalesce(%(now)s, now())) AS due
FROM segment WHERE {_THIS_SEGMENT}
"""  # noqa: S608 (constants only)

NEXT_DUE = """
SELECT t.tx_id, s.pipeline, s.owner, t.expires_at, s.expiring_at,
       extract(epoch FROM t.expires_at - coalesce(%(now)s, now()))::float AS left_s
FROM tx_timeout t JOIN tx_summary s ON s.tx_id = t.tx_id
ORDER BY t.due_at, t.tx_id LIMIT %(rows_max)s
"""

LOOK_AGAIN = """
UPDATE tx_timeout
SET due_at = greatest(expires_at, coalesce(%(now)s, now()) + make_interval(secs => %(again_s)s))
WHERE tx_id = ANY(ARRAY(
    SELECT tx_id FROM tx_timeout WHERE tx_id = ANY(%(tx_id)s) FOR UPDATE SKIP LOCKED))
"""

FORGET = """
DELETE FROM tx_timeout WHERE tx_id = ANY(ARRAY(
    SELECT tx_id FROM tx_timeout WHERE tx_id = ANY(%(tx_id)s) FOR UPDATE SKIP LOCKED))
"""


@dataclass(frozen=True, slots=True)
class Peek:
    #: The log has rows that no pass has read and that may be read now.
    is_new: bool
    is_due: bool
    #: Age of the oldest row that no pass has read.
    lag_s: float
    #: An alert says that the handler is behind.
    is_alarmed: bool


@dataclass(frozen=True, slots=True)
class Window:
    """What one pass found in the log."""

    rows: int = 0
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """A transaction whose time is over; nobody else takes it for a while."""

    tx_id: str
    expires_at: datetime
    #: What its worker had done when it was asked to stop, and how long ago that was.
    asked: str | None
    asked_ago_s: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the handler stands, for people."""

    #: The segment: the log is read up to this row, in the order of transactions.
    value: int
    xact: str
    changed_at: datetime | None
    #: Transactions in process that have an expiry, and how many of them are due.
    watched: int
    due: int


@dataclass(frozen=True, slots=True)
class Next:
    """A transaction that expires soon, or is doing so."""

    tx_id: str
    pipeline: str
    owner: str
    expires_at: datetime
    left_s: float
    #: When it was marked as expiring, because work had begun.
    expiring_at: datetime | None


class Timeouts:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def peek(self) -> Peek:
        """Whether there is anything to do: no lock, no write, the same cost at any size."""
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(PEEK, self._values(alert=BEHIND)).one()
            return Peek(row.is_new, row.is_due, row.lag_s, row.is_alarmed)

    def run_pass(
        self, *, rows_max: int, batch_max: int, again_s: float
    ) -> tuple[Window, list[Due]]:
        """One pass, in one commit. Where another one is reading, only what is due is taken."""
        with self._engine.begin() as connection:
            window = self._read_window(connection, rows_max)
            due = self._take_due(connection, batch_max, again_s)
            reach("timeouts.in_pass")
        return window, due

    def _read_window(self, connection: Connection, rows_max: int) -> Window:
        at = (
            connection.exec_driver_sql(LOCK, self._values()).first()
            or connection.exec_driver_sql(FIRST_LOCK, self._values()).first()
        )
        if at is None:
            return Window()
        values = self._values(
            xact=at.xact, value=at.value, rows_max=rows_max, final=[str(each) for each in FINAL]
        )
        row = connection.exec_driver_sql(READ_WINDOW, values).one()
        return Window(row.rows, row.added, row.removed)

    def _take_due(self, connection: Connection, batch_max: int, again_s: float) -> list[Due]:
        values = self._values(batch_max=batch_max, again_s=again_s)
        rows = connection.exec_driver_sql(TAKE_DUE, values)
        return [Due(row.tx_id, row.expires_at, row.asked, row.asked_ago_s) for row in rows]

    def note_asked(self, asked: Sequence[tuple[str, str]]) -> None:
        """Remember what each worker had done when it was first asked to stop."""
        values = self._values(tx_id=[tx for tx, _ in asked], asked=[text for _, text in asked])
        with self._engine.begin() as connection:
            connection.exec_driver_sql(NOTE_ASKED, values)

    def look_again(self, tx_ids: Sequence[str], again_s: float) -> None:
        """Sooner than others: nothing could be done about them just now."""
        if tx_ids:
            with self._engine.begin() as connection:
                values = self._values(tx_id=list(tx_ids), again_s=again_s)
                connection.exec_driver_sql(LOOK_AGAIN, values)

    def forget(self, tx_ids: Sequence[str]) -> None:
        """Transactions that turned out to be final."""
        if tx_ids:
            with self._engine.begin() as connection:
                connection.exec_driver_sql(FORGET, {"tx_id": list(tx_ids)})

    def standing(self) -> Standing:
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(STANDING, self._values()).one()
            return Standing(row.value, row.xact, row.changed_at, row.watched, row.due)

    def next_due(self, rows_max: int) -> list[Next]:
        """Those that the handler looks at next."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(NEXT_DUE, self._values(rows_max=rows_max))
            return [
                Next(r.tx_id, r.pipeline, r.owner, r.expires_at, r.left_s, r.expiring_at)
                for r in rows
            ]

    def _values(self, **more: Any) -> dict[str, Any]:
        return {**SEGMENT, "now": self._clock.now(), **more}
