"""Which transactions may expire: one incremental pass over the log of state changes.

The log only grows, so a pass reads what is new since the last one and no more:

    lock the segment → read the window of new rows → add transactions still in process to
    `tx_timeout`, remove those that are final → advance the segment → take what is due → commit

Rows become visible in the order of commits, not in the order of ids: a row can appear behind
one that was read before. So the window ends where the oldest transaction that still runs began
(`pg_snapshot_xmin`), and its order is that of transaction ids; nothing can appear behind it.

A row of `tx_timeout` stays until the log says that its transaction is final. A process that takes
a due one and dies has only delayed it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.failpoints import reach
from datp_tasks.model.status import FINAL
from datp_tasks.model.transfer_state import transfer_state
from datp_tasks.record.queries import Queries

log = logging.getLogger("datp.timeouts")

#: The kind of alert that is open while the handler is too far behind.
BEHIND = "timeouts-behind"
#: So far behind, the handler does not run or does not keep up.
LAG_ALERT_S = 60.0

SEGMENT = {"segment_type": "timeout", "enumeration": 0, "table_name": "tx_state_change"}


class Query(Queries, topic="timeouts"):
    peek: str
    lock_segment: str
    first_lock: str
    renumber: str
    read_from_the_start: str
    read_window: str
    take_due: str
    note_asked: str
    standing: str
    next_due: str
    look_again: str
    forget: str
    forget_past_return: str


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
    """A transaction whose time is over; no other process takes it for a while."""

    tx_id: str
    expires_at: datetime
    #: What its worker had done when it was asked to stop, and how long ago that was.
    asked: str | None
    asked_ago_s: float | None


@dataclass(frozen=True, slots=True)
class TimeoutStanding:
    """Where the handler stands, for people."""

    #: The segment: the log is read up to this row, in the order of transactions.
    value: int
    xact: str
    changed_at: datetime | None
    #: Transactions in process that have an expiry, and how many of them are due.
    watched: int
    due: int


@dataclass(frozen=True, slots=True)
class NextTimeout:
    """A transaction that expires soon, or is doing so."""

    tx_id: str
    pipeline: str
    owner: str
    expires_at: datetime
    left_s: float
    #: When it was marked as expiring, because work had begun.
    expiring_at: datetime | None
    #: In the words of Mojaloop (model/transfer_state.py), as the log has it last.
    state: str


class Timeouts:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def peek(self) -> Peek:
        """Whether there is anything to do: no lock, no write, the same cost at any size."""
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(Query.peek, self._values(alert=BEHIND)).one()
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
            connection.exec_driver_sql(Query.lock_segment, self._values()).first()
            or connection.exec_driver_sql(Query.first_lock, self._values()).first()
        )
        if at is None:
            return Window()
        if at.is_ahead:
            return self._begin_again(connection, rows_max)
        values = self._values(
            xact=at.xact, value=at.value, rows_max=rows_max, final=[str(each) for each in FINAL]
        )
        row = connection.exec_driver_sql(Query.read_window, values).one()
        return Window(row.rows, row.added, row.removed)

    def _begin_again(self, connection: Connection, rows_max: int) -> Window:
        """The segment comes from another server, whose transaction ids were higher.

        That is so after a dump was restored. New rows would never be read.
        """
        values = self._values(rows_max=rows_max)
        renumbered = connection.exec_driver_sql(Query.renumber, values).rowcount
        if renumbered < rows_max:
            log.warning("the log of state changes comes from another server; it is read again")
            connection.exec_driver_sql(Query.read_from_the_start, values)
        return Window(renumbered)

    def _take_due(self, connection: Connection, batch_max: int, again_s: float) -> list[Due]:
        values = self._values(batch_max=batch_max, again_s=again_s)
        rows = connection.exec_driver_sql(Query.take_due, values)
        return [Due(row.tx_id, row.expires_at, row.asked, row.asked_ago_s) for row in rows]

    def note_asked(self, asked: Sequence[tuple[str, str]]) -> None:
        """Remember what each worker had done when it was first asked to stop."""
        values = self._values(tx_id=[tx for tx, _ in asked], asked=[text for _, text in asked])
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.note_asked, values)

    def look_again(self, tx_ids: Sequence[str], again_s: float) -> None:
        """Sooner than others: nothing could be done about them just now."""
        if tx_ids:
            with self._engine.begin() as connection:
                values = self._values(tx_id=list(tx_ids), again_s=again_s)
                connection.exec_driver_sql(Query.look_again, values)

    def forget(self, tx_ids: Sequence[str]) -> None:
        """Transactions that turned out to be final."""
        if tx_ids:
            with self._engine.begin() as connection:
                connection.exec_driver_sql(Query.forget, {"tx_id": list(tx_ids)})

    def forget_past_return(self, tx_ids: Sequence[str]) -> None:
        """Transactions that turned out to be past their point of no return."""
        if tx_ids:
            with self._engine.begin() as connection:
                connection.exec_driver_sql(Query.forget_past_return, {"tx_id": list(tx_ids)})

    def standing(self) -> TimeoutStanding:
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(Query.standing, self._values()).one()
            return TimeoutStanding(row.value, row.xact, row.changed_at, row.watched, row.due)

    def next_due(self, rows_max: int) -> list[NextTimeout]:
        """Those that the handler looks at next."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.next_due, self._values(rows_max=rows_max))
            return [
                NextTimeout(
                    *(r.tx_id, r.pipeline, r.owner, r.expires_at, r.left_s, r.expiring_at),
                    transfer_state(r.status, r.detail),
                )
                for r in rows
            ]

    def _values(self, **more: Any) -> dict[str, Any]:
        return {**SEGMENT, "now": self._clock.now(), **more}
