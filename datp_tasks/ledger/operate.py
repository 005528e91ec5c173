"""What operators can do to a batch. Each act is one commit with a line in the audit."""

from __future__ import annotations

import json

from datp_tasks.errors import BatchBusy, BatchUnknown, LedgerError
from datp_tasks.ledger.batches import ANOMALY_ALERT, PARKED_ALERT, subject_of
from datp_tasks.ledger.sql import Sql, timed
from datp_tasks.ledger.types import Finished, Tell
from datp_tasks.model.batch import FINAL_STATES, TO_ASK, BatchState
from datp_tasks.model.notes import clean_note
from datp_tasks.record.alerts import Alerts

# Claim before batch, as everywhere.
LOCK_CLAIM = "SELECT 1 FROM service_claim WHERE service_id = %(service)s FOR NO KEY UPDATE"

LOCK_BATCH = """
SELECT state, possible, tx_id, switch FROM ledger_batch
WHERE service_id = %(service)s AND batch_id = %(batch)s FOR NO KEY UPDATE
"""

SET = timed("""
UPDATE ledger_batch
SET state = %(state)s, note = %(note)s, unknown_seen = 0, polls = 0,
    resubmits = CASE WHEN %(anew)s THEN 0 ELSE resubmits END,
    next_at = CASE WHEN %(rests)s THEN 'infinity' ELSE <now> END,
    final_at = CASE WHEN %(final)s THEN <now> END
WHERE service_id = %(service)s AND batch_id = %(batch)s
""")

SEEN = timed("""
INSERT INTO batch_status (service_id, batch_id, state, source, note, seen_at)
VALUES (%(service)s, %(batch)s, %(state)s, 'operator', %(note)s, <now>)
""")

DUE = timed("UPDATE service_claim SET due_at = <now> WHERE service_id = %(service)s")

AUDIT = timed("""
INSERT INTO operator_action (actor, action, subject, reason, details, created_at)
VALUES (%(actor)s, %(action)s, %(subject)s, %(reason)s, %(details)s::json, <now>)
""")


class Operator:
    def __init__(self, sql: Sql, alerts: Alerts, tell: Tell) -> None:
        self._sql = sql
        self._alerts = alerts
        self._tell = tell

    def park(self, service_id: str, batch_id: str, *, actor: str, reason: str) -> BatchState:
        """Keep a batch, and with it the ones behind it, until it is resumed."""
        allowed = {BatchState.NEW, BatchState.DELAYED, *TO_ASK}
        return self._change("park", service_id, batch_id, actor, reason, allowed, BatchState.PARKED)

    def resume(self, service_id: str, batch_id: str, *, actor: str, reason: str) -> BatchState:
        """Let a parked batch go on: the ledger is asked first if it may have it already."""
        allowed = {BatchState.PARKED}
        return self._change("resume", service_id, batch_id, actor, reason, allowed, None)

    def resubmit(self, service_id: str, batch_id: str, *, actor: str, reason: str) -> BatchState:
        """Send the same bytes again without asking the ledger; the operator knows better."""
        allowed = {BatchState.PARKED, BatchState.UNKNOWN}
        return self._change(
            "resubmit", service_id, batch_id, actor, reason, allowed, BatchState.DELAYED
        )

    def resolve(
        self, service_id: str, batch_id: str, to: BatchState, *, actor: str, reason: str
    ) -> BatchState:
        """End a parked batch as COMMITTED or INVALID, as the operator found it to be."""
        if to not in (BatchState.COMMITTED, BatchState.INVALID):
            raise LedgerError("a batch can be resolved as COMMITTED or as INVALID")
        return self._change("resolve", service_id, batch_id, actor, reason, {BatchState.PARKED}, to)

    def _change(
        self,
        action: str,
        service_id: str,
        batch_id: str,
        actor: str,
        reason: str,
        allowed: set[BatchState],
        to: BatchState | None,
    ) -> BatchState:
        reason = clean_note(reason.strip())
        if not reason:
            raise LedgerError("a reason must be given; it goes into the audit")
        names = {"service": service_id, "batch": batch_id}
        subject = subject_of(service_id, batch_id)
        with self._sql.transaction() as connection:
            self._sql.rows(connection, LOCK_CLAIM, names)
            rows = self._sql.rows(connection, LOCK_BATCH, names)
            if not rows:
                raise BatchUnknown(f"{service_id} has no batch {batch_id[:128]!r}")
            found = BatchState(rows[0].state)
            if found not in allowed:
                raise BatchBusy(_why_not(action, found, allowed))
            if not rows[0].possible and to in (None, BatchState.DELAYED):
                # It never left, so it may not even be first in line.
                to = BatchState.NEW
            to = to or BatchState.UNKNOWN
            values = {
                **names,
                "state": to,
                "note": f"{action} by {actor}: {reason}",
                "anew": action in ("resume", "resubmit"),
                "rests": to is BatchState.PARKED or to in FINAL_STATES,
                "final": to in FINAL_STATES,
            }
            for statement in (SET, SEEN, DUE):
                self._sql.rows(connection, statement, values)
            details = json.dumps({"from": found, "to": to})
            audit = {"actor": actor, "action": f"batch.{action}", "subject": subject}
            self._sql.rows(connection, AUDIT, {**audit, "reason": reason, "details": details})
            for kind in (PARKED_ALERT, ANOMALY_ALERT):
                self._alerts.clear_alert(kind, subject, connection=connection)
        if to in FINAL_STATES:
            row = rows[0]
            self._tell(
                [
                    Finished(
                        service_id=service_id,
                        batch_id=batch_id,
                        state=to,
                        tx_id=row.tx_id,
                        switch=row.switch,
                    )
                ]
            )
        return to


def _why_not(action: str, found: BatchState, allowed: set[BatchState]) -> str:
    if found is BatchState.SUBMITTING:
        return f"it is being submitted right now; try to {action} it again in a few seconds"
    if found in FINAL_STATES:
        return f"it has ended: {found}"
    return f"it is {found}; to {action} it, it must be {' or '.join(sorted(allowed))}"
