"""The point of no return: a transaction past it can only finish, or be parked.

Expiry, cancel and that point are decided in one place: the row of the transaction. Whichever is
written there first wins, and a constraint of the table says that there are never both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from datp_tasks.clock import Clock
from datp_tasks.model.state import PointKind
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import Stop

#: How long a cancel waits for a row that a transactional step holds. After that it is only asked
#: for, and decided when the step is over: a client must not wait for as long as a step may take.
STOP_LOCK_MS = 250
LOCK_NOT_AVAILABLE = "55P03"


class Query(Queries, topic="points"):
    pass_point: str
    end_forward: str
    confirm_stop: str
    bound: str
    ask_to_stop: str
    ask_many_to_stop: str
    take_back: str
    limit_wait: str


@dataclass(frozen=True, slots=True)
class PointClaim:
    """Who asks for a transaction to be bound, and how."""

    tx_id: str
    fence: int
    kind: PointKind


@dataclass(frozen=True, slots=True)
class StopRecorded:
    """What became of a cancel that was to be recorded."""

    #: The kind of point that came first, if one did.
    point: PointKind | None = None
    #: No cancel was recorded before.
    is_new: bool = False


#: Passed, or what came first. None: it has ended, or another worker has it.
Passage = Stop | bool | None


class Points:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        #: Each statement is a transaction of its own.
        self._autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._clock = clock

    def pass_many(self, claims: Sequence[PointClaim]) -> dict[str, Passage]:
        """Record points, in one commit; for each whether it passed."""
        with self._autocommit.connect() as connection:
            return pass_points(connection, claims, self._clock.now())

    def end_forward(self, claims: Sequence[tuple[str, int]]) -> None:
        """Other systems have answered: these may expire and be cancelled again."""
        columns = {"tx_id": [tx for tx, _ in claims], "fence": [fence for _, fence in claims]}
        with self._autocommit.connect() as connection:
            connection.exec_driver_sql(Query.end_forward, {**columns, "now": self._clock.now()})

    def confirm_stops(self, stops: Sequence[tuple[str, int, str]]) -> set[str]:
        """Record that these turn around, as (id, fence, request); those that must not."""
        columns = {
            "tx_id": [tx_id for tx_id, _, _ in stops],
            "fence": [fence for _, fence, _ in stops],
            "request": [request for _, _, request in stops],
        }
        with self._autocommit.connect() as connection:
            return {row.tx_id for row in connection.exec_driver_sql(Query.confirm_stop, columns)}

    def bound(self, tx_ids: Sequence[str]) -> dict[str, PointKind]:
        """Those that cannot expire, for good or for now."""
        with self._autocommit.connect() as connection:
            rows = connection.exec_driver_sql(Query.bound, {"tx_id": list(tx_ids)})
            return {row.tx_id: row.kind for row in rows}

    def ask_to_stop(self, tx_id: str, request: StopRequest) -> StopRecorded:
        """Record a cancel, unless a point or another cancel came first.

        A row that a step holds for long is passed over: that is decided when the step is over.
        """
        values = {"tx_id": tx_id, "value": request.to_text()}
        try:
            with self._engine.begin() as connection:
                connection.exec_driver_sql(Query.limit_wait, {"lock_ms": str(STOP_LOCK_MS)})
                row = connection.exec_driver_sql(Query.ask_to_stop, values).first()
        except OperationalError as error:
            if getattr(error.orig, "pgcode", None) != LOCK_NOT_AVAILABLE:
                raise
            return StopRecorded()
        return StopRecorded() if row is None else _recorded(row)

    def ask_many_to_stop(
        self, tx_ids: Sequence[str], request: StopRequest
    ) -> dict[str, StopRecorded]:
        """The same for many by one commit; for a row that is locked then by a commit of its own."""
        values = {"tx_id": list(tx_ids), "value": request.to_text()}
        with self._autocommit.connect() as connection:
            rows = connection.exec_driver_sql(Query.ask_many_to_stop, values)
            found = {row.tx_id: _recorded(row) for row in rows}
        left = [tx_id for tx_id in tx_ids if tx_id not in found]
        return found | {tx_id: self.ask_to_stop(tx_id, request) for tx_id in left}

    def take_back(self, tx_id: str, request: StopRequest) -> None:
        """A cancel that was new is refused for another reason; it must not hold up the
        transaction."""
        values = {"tx_id": tx_id, "value": request.to_text()}
        with self._autocommit.connect() as connection:
            connection.exec_driver_sql(Query.take_back, values)


def pass_points(
    connection: Connection, claims: Iterable[PointClaim], now: datetime | None
) -> dict[str, Passage]:
    """The same in a transaction that is under way: in the commit of a step's effects."""
    wanted = {each.tx_id: each for each in claims}
    values = {
        "tx_id": list(wanted),
        "fence": [each.fence for each in wanted.values()],
        "kind": [each.kind for each in wanted.values()],
        "now": now,
    }
    rows = connection.exec_driver_sql(Query.pass_point, values)
    return {row.tx_id: _passage(row, wanted[row.tx_id].fence) for row in rows}


def _recorded(row: Any) -> StopRecorded:
    if row.no_return_at or row.forwarded_at:
        return StopRecorded("final" if row.no_return_at else "forward")
    return StopRecorded(is_new=row.is_new)


def _passage(row: Any, fence: int) -> Passage:
    if row.is_passed:
        return True
    if row.fence > fence:
        return None
    return Stop(row.stop_request or expiry_text(row.expired_at))


def expiry_text(expired_at: datetime | None) -> str | None:
    """The request of one that was marked as expiring, as its row has it."""
    if expired_at is None:
        return None
    return StopRequest.over(expired_at).to_text()
