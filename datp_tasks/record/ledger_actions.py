"""What operators do to a batch: one commit each, with a line in the audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from datp_tasks.errors import BatchUnknown
from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import FINAL_STATES, BatchState
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.ledger_batches import subject_of
from datp_tasks.record.ledger_sql import Sql
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.queries import Queries

#: Action -> as a note says that it was done.
DONE = {
    "park": "parked",
    "resume": "resumed",
    "resubmit": "resubmitted",
    "resolve": "resolved",
}


class Query(Queries, topic="ledger_actions"):
    lock_claim: str
    lock_batch: str
    set_state: str
    note_state: str
    note_due: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What an operator does to a batch, and why."""

    name: str
    actor: Actor
    reason: str
    to: BatchState
    #: Resubmissions are counted from 0 again.
    anew: bool
    #: Alerts that are settled by it.
    clears: Sequence[str]
    #: For the audit, beside the states.
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedBatch:
    """A batch as it is; it stays so until the commit, unless the holder of the lock changes it."""

    service_id: str
    batch_id: str
    state: BatchState
    #: Attempts that may have reached the ledger.
    possible: int
    tx_id: str | None
    switch: str | None
    connection: Connection


class BatchActions:
    def __init__(self, sql: Sql, alerts: Alerts) -> None:
        self._sql = sql
        self._alerts = alerts

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._sql.transaction() as connection:
            yield connection

    @contextmanager
    def locked(self, service_id: str, batch_id: str) -> Iterator[LockedBatch]:
        """What is done to the batch inside is committed at the end."""
        with self._sql.transaction() as connection:
            yield self.lock(connection, service_id, batch_id)

    def lock(self, connection: Connection, service_id: str, batch_id: str) -> LockedBatch:
        """The same as a part of another transaction."""
        names = {"service": service_id, "batch": batch_id}
        self._sql.rows(connection, Query.lock_claim, names)
        rows = self._sql.rows(connection, Query.lock_batch, names)
        if not rows:
            raise BatchUnknown(f"{service_id} has no batch {batch_id[:128]!r}")
        return LockedBatch(
            service_id=service_id,
            batch_id=batch_id,
            state=BatchState(rows[0].state),
            possible=rows[0].possible,
            tx_id=rows[0].tx_id,
            switch=rows[0].switch,
            connection=connection,
        )

    def change(self, batch: LockedBatch, act: Act) -> None:
        values = {
            "service": batch.service_id,
            "batch": batch.batch_id,
            "state": act.to,
            "note": f"{DONE[act.name]} by {act.actor}: {act.reason}",
            "anew": act.anew,
            "rests": act.to is BatchState.PARKED or act.to in FINAL_STATES,
            "final": act.to in FINAL_STATES,
        }
        for statement in (Query.set_state, Query.note_state, Query.note_due):
            self._sql.rows(batch.connection, statement, values)
        subject = subject_of(batch.service_id, batch.batch_id)
        note_action(
            batch.connection,
            actor=act.actor,
            action=f"batch.{act.name}",
            subject=subject,
            reason=act.reason,
            details={"from": batch.state, "to": act.to, **act.details},
            now=self._sql.now(),
        )
        for kind in act.clears:
            self._alerts.clear_alert(kind, subject, connection=batch.connection)
