"""Transactional steps: the effects of steps and their outputs are one commit.

The commit also holds the summary rows and looks at their fences, so a worker whose
transaction was taken over cannot apply anything any more. A row cannot be taken over while it is
held, so PostgreSQL ends a connection that is silent for longer than a step may take.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from psycopg2.extensions import TRANSACTION_STATUS_IDLE, TRANSACTION_STATUS_INTRANS
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from datp_tasks.clock import Clock
from datp_tasks.errors import StepError
from datp_tasks.failpoints import reach
from datp_tasks.model.payload import Json, encode
from datp_tasks.record.array_text import with_array_texts
from datp_tasks.record.database import connect_for_step, is_outage
from datp_tasks.record.lent_connection import OWN_COMMIT, LentConnection
from datp_tasks.record.points import PointClaim, expiry_text, pass_points
from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import Stop

CLOSED = "do not close ctx.sql (or batch.sql): the engine commits it when the step returns"
LOST = "the connection to PostgreSQL was lost inside the step"
#: Serialization failure and deadlock: the same again may well succeed.
PASSING = ("40001", "40P01")


class Query(Queries, topic="effects"):
    hold: str
    save: str
    is_recorded: str
    open_item: str
    next_item: str
    undo_item: str


@dataclass(frozen=True, slots=True)
class WantedEffect:
    """One try of one step, which may take effect once."""

    tx_id: str
    step_key: str
    fence: int


class Effects:
    """An open SQL transaction in which steps of one or more transactions take effect."""

    def __init__(
        self, connection: Connection, clock: Clock, wanted: Sequence[WantedEffect]
    ) -> None:
        self.connection = connection
        self._clock = clock
        self._wanted = {each.tx_id: each for each in wanted}
        #: Transactions that are not final and under no newer fence; no other may take effect.
        self.held: frozenset[str] = frozenset()
        #: Outputs of steps that took effect in an earlier try.
        self.recorded: dict[str, Json | None] = {}
        #: Transactions that must not pass a point of no return any more, and why.
        self.stops: dict[str, Stop] = {}
        #: Transactions that have passed one before.
        self.past_return: frozenset[str] = frozenset()
        #: Set to commit; without it everything is rolled back.
        self.is_to_commit = False

    def hold(self, idle_s: float, lock_ms: int) -> None:
        columns = self._columns(self._wanted)
        limits = {"idle_ms": str(int(idle_s * 1_000)), "lock_ms": str(lock_ms)}
        values = {**columns, **limits, "now": self._clock.now()}
        rows = self.connection.exec_driver_sql(Query.hold, with_array_texts(values)).all()
        self.held = frozenset(row.tx_id for row in rows)
        self.recorded = {row.tx_id: _parse(row.output) for row in rows if row.is_recorded}
        self.past_return = frozenset(row.tx_id for row in rows if row.is_past_return)
        self.stops = {
            row.tx_id: Stop(row.stop_request or expiry_text(row.expired_at))
            for row in rows
            if row.is_stopped
        }

    def open_item(self, *, is_first: bool) -> None:
        """What follows can be undone without undoing what came before."""
        self.connection.exec_driver_sql(Query.open_item if is_first else Query.next_item)

    def undo_item(self) -> None:
        self.connection.exec_driver_sql(Query.undo_item)

    def lend(self) -> None:
        """From here on the connection is in the hands of steps."""
        self._lent = cast(LentConnection, self.connection.connection.dbapi_connection)
        self._lent.lend()

    def take_back(self) -> None:
        self._lent.take_back()
        if self._lent.misuse and not (self.connection.closed or self.connection.invalidated):
            # The library takes the transaction for ended and would not roll it back.
            self.connection.invalidate()

    def check(self) -> None:
        """StepError if a step has tried to end the transaction, or has lost it."""
        misuse = self._lent.misuse
        if not misuse and self.connection.invalidated:
            misuse = LOST
        elif not misuse and (self.connection.closed or self._lent.closed):
            misuse = CLOSED
        elif not misuse and self._lent.info.transaction_status == TRANSACTION_STATUS_IDLE:
            misuse = OWN_COMMIT
        if misuse:
            raise StepError(misuse)

    @property
    def is_sound(self) -> bool:
        """No statement has failed since the last savepoint."""
        return bool(self._lent.info.transaction_status == TRANSACTION_STATUS_INTRANS)

    def record(self, outputs: dict[str, Json | None]) -> None:
        """These steps took effect, with these outputs: to be committed together with that."""
        if not outputs:
            return
        # In the order of their ids: two workers that record the same ones then wait for each
        # other in one direction only.
        outputs = dict(sorted(outputs.items()))
        texts = [None if out is None else encode(out) for out in outputs.values()]
        columns = self._columns(outputs)
        values = {**columns, "output": texts, "now": self._clock.now()}
        self.connection.exec_driver_sql(Query.save, with_array_texts(values))

    def pass_points(self, tx_ids: Sequence[str]) -> None:
        """Their points of no return: to be committed together with the effects.

        The rows have been held since it was found that nothing had stopped them.
        """
        if not tx_ids:
            return
        claims = [PointClaim(tx_id, self._wanted[tx_id].fence, "final") for tx_id in sorted(tx_ids)]
        passed = pass_points(self.connection, claims, self._clock.now())
        refused = [tx_id for tx_id in tx_ids if passed.get(tx_id) is not True]
        if refused:
            raise StepError(f"{refused[0]} was stopped before its point of no return")

    def _columns(self, tx_ids: Any) -> dict[str, Any]:
        wanted = [self._wanted[tx_id] for tx_id in tx_ids]
        return {
            "tx_id": [each.tx_id for each in wanted],
            "step_key": [each.step_key for each in wanted],
            "fence": [each.fence for each in wanted],
        }


class EffectStore:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def is_recorded(self, tx_id: str, step_key: str) -> bool:
        """Whether the step has taken effect."""
        values = {"tx_id": tx_id, "step_key": step_key}
        with self._engine.connect() as connection:
            found = connection.exec_driver_sql(Query.is_recorded, values).scalar_one()
        return bool(found)

    @contextmanager
    def open(
        self, wanted: Sequence[WantedEffect], *, idle_s: float, lock_ms: int
    ) -> Iterator[Effects]:
        """Steps may take effect inside; they do if `is_to_commit` was set at the end.

        `lock_ms`: how long a statement may wait for a lock, 0 for as long as any statement may.
        """
        with connect_for_step(self._engine) as connection:
            effects = Effects(connection, self._clock, wanted)
            effects.hold(idle_s, lock_ms)
            effects.lend()
            try:
                yield effects
            finally:
                effects.take_back()
            if effects.is_to_commit:
                reach("effect.before_commit")
                connection.commit()
                reach("effect.after_commit")
            else:
                connection.rollback()


def is_unavailable(error: DBAPIError) -> bool:
    """The connection was lost or could not be made."""
    if error.connection_invalidated:
        return True
    return isinstance(error, OperationalError) and is_outage(error)


def is_passing(error: DBAPIError) -> bool:
    """It says nothing about the step: the same again finds out, or may well succeed.

    A connection that was lost (perhaps after the commit), a deadlock, a serialization failure, or
    an effect that another worker has recorded meanwhile.
    """
    if is_unavailable(error) or getattr(error.orig, "pgcode", None) in PASSING:
        return True
    diagnosis = getattr(error.orig, "diag", None)
    is_record = getattr(diagnosis, "table_name", "") == "step_effect"
    return isinstance(error, IntegrityError) and is_record


def _parse(text: str | None) -> Json | None:
    return None if text is None else json.loads(text)
