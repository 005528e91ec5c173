"""What outside said to a transaction: switches and cancels, kept until it has ended.

A client is told that its switch is set when SQL has it. Redis may lose its last writes; then the
reconciler says it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from datp_tasks.clock import Clock
from datp_tasks.errors import TransactionError, TransactionMoved
from datp_tasks.record.points import LOCK_NOT_AVAILABLE, STOP_LOCK_MS
from datp_tasks.record.points import Query as PointQuery
from datp_tasks.record.queries import Queries
from datp_tasks.record.transactions import Place

#: Adds a line to the audit, in the transaction that it is given.
Note = Callable[..., None]

#: When a signal came, its transaction and its name: in this order they are repeated.
SignalPlace = tuple[datetime, str, str]

#: The name under which a cancel is kept; no switch can be called that.
CANCEL = "!cancel"


class Query(Queries, topic="signals"):
    add: str
    add_many: str
    unmoved: str
    put_back: str
    replace: str
    withdraw: str
    of_transactions: str
    asked_to_stop: str
    recent: str
    cancels: str
    forget_ended: str


@dataclass(frozen=True, slots=True)
class Signal:
    tx_id: str
    name: str
    #: The JSON of a switch, or how a cancelled transaction must end and why.
    value: str
    #: Number of the switch that a step has put in its place, if one has.
    replaced_seq: int | None = None


@dataclass(frozen=True, slots=True)
class SeenRow:
    """What the sender of a signal saw of the row of a transaction."""

    sequence: int
    fence: int


class Signals:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def add(
        self, signal: Signal, note: Note | None = None, *, seen: SeenRow | None = None
    ) -> Signal | None:
        """The one of that name before it. Nothing is kept for what has ended or is not known.

        Who sent it is written down by the same commit. With `seen` nothing is kept, and
        TransactionMoved raised, unless the row is so when this commits.
        """
        values = {"tx_id": signal.tx_id, "name": signal.name, "value": signal.value}
        with self._engine.begin() as connection:
            if seen is not None:
                _hold(connection, signal.tx_id, seen)
            if note is not None:
                note(connection, now=self._now())
            row = connection.exec_driver_sql(Query.add, {**values, "now": self._now()}).first()
            return None if row is None else Signal(*row)

    def add_many(
        self, tx_ids: Sequence[str], name: str, value: str, note: Note | None = None
    ) -> dict[str, Signal]:
        """A cancel of many, by one commit; the signals of that name before it.

        None is kept for one that is in doubt, forwarded or past its point of no return.
        """
        values = {"tx_id": list(tx_ids), "name": name, "value": value, "now": self._now()}
        with self._engine.begin() as connection:
            if note is not None:
                note(connection, now=self._now())
            rows = connection.exec_driver_sql(Query.add_many, values)
            return {row.tx_id: Signal(*row) for row in rows}

    def withdraw(self, signal: Signal, before: Signal | None) -> None:
        """It was refused, so it must not be said again; the one before it counts."""
        values = {"tx_id": signal.tx_id, "name": signal.name, "value": signal.value}
        with self._engine.begin() as connection:
            if before is None:
                connection.exec_driver_sql(Query.withdraw, values)
            else:
                older = {"before": before.value, "replaced_seq": before.replaced_seq}
                connection.exec_driver_sql(Query.put_back, {**values, **older})

    def replace(self, signal: Signal) -> None:
        """A step has put another switch in its place: only if Redis loses that is it repeated."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.replace, asdict(signal))

    def of(self, tx_ids: Sequence[str]) -> list[Signal]:
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.of_transactions, {"tx_id": list(tx_ids)})
            return [Signal(*row) for row in rows]

    def asked_to_stop(self, tx_ids: Sequence[str]) -> set[str]:
        """Those of which a cancel is kept and recorded."""
        values = {"tx_id": list(tx_ids), "name": CANCEL}
        with self._engine.connect() as connection:
            return {row.tx_id for row in connection.exec_driver_sql(Query.asked_to_stop, values)}

    def recent(
        self, *, since: datetime, after: SignalPlace | None, rows_max: int
    ) -> list[tuple[SignalPlace, Signal]]:
        """A page of those to transactions that go on, each with its place; the oldest first."""
        after_at, after_id, after_name = after or (None, "", "")
        values = {"since": since, "after_at": after_at, "after_id": after_id}
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(
                Query.recent, {**values, "after_name": after_name, "limit": rows_max}
            )
            return [((row.created_at, row.tx_id, row.name), Signal(*row[:4])) for row in rows]

    def cancels(
        self, *, since: datetime, until: datetime, after: Place | None, rows_max: int
    ) -> list[tuple[Place, Signal]]:
        """A page of those of a while whose transactions can be stopped, each with its place."""
        after_at, after_id = after or (None, "")
        values = {"since": since, "until": until, "after_at": after_at, "after_id": after_id}
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(
                Query.cancels, {**values, "name": CANCEL, "limit": rows_max}
            )
            return [
                ((row.created_at, row.tx_id), Signal(row.tx_id, row.name, row.value))
                for row in rows
            ]

    def forget_ended(self, *, rows_max: int) -> int:
        """Those of transactions that have ended are of no use any more."""
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(Query.forget_ended, {"limit": rows_max}).rowcount

    def _now(self) -> datetime | None:
        return self._clock.now()


def _hold(connection: Connection, tx_id: str, seen: SeenRow) -> None:
    """Let no event happen to a transaction before this commits, if it is as it was seen."""
    values = {"tx_id": tx_id, "sequence": seen.sequence, "fence": seen.fence}
    connection.exec_driver_sql(PointQuery.limit_wait, {"lock_ms": str(STOP_LOCK_MS)})
    try:
        row = connection.exec_driver_sql(Query.unmoved, values).first()
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) != LOCK_NOT_AVAILABLE:
            raise
        raise TransactionError(f"a step of {tx_id} commits just now; try again") from None
    if row is None:
        raise TransactionMoved(f"{tx_id} is not as it was seen any more")
