"""What operators can do to a batch. Each act is one commit with a line in the audit."""

from __future__ import annotations

from datp_tasks.errors import BatchBusy, LedgerError
from datp_tasks.ledger.types import Finished, Tell
from datp_tasks.model.actor import Actor
from datp_tasks.model.batch import FINAL_STATES, TO_ASK, BatchState
from datp_tasks.model.notes import clean_note
from datp_tasks.record.ledger_actions import Act, BatchActions
from datp_tasks.record.ledger_batches import ANOMALY_ALERT, PARKED_ALERT


class Operator:
    def __init__(self, actions: BatchActions, tell: Tell) -> None:
        self._actions = actions
        self._tell = tell

    def park(self, service_id: str, batch_id: str, *, actor: Actor, reason: str) -> BatchState:
        """Keep a batch, and with it the ones behind it, until it is resumed."""
        allowed = {BatchState.NEW, BatchState.DELAYED, *TO_ASK}
        return self._change("park", service_id, batch_id, actor, reason, allowed, BatchState.PARKED)

    def resume(self, service_id: str, batch_id: str, *, actor: Actor, reason: str) -> BatchState:
        """Let a parked batch go on: the ledger is asked first if it may have it already."""
        allowed = {BatchState.PARKED}
        return self._change("resume", service_id, batch_id, actor, reason, allowed, None)

    def resubmit(self, service_id: str, batch_id: str, *, actor: Actor, reason: str) -> BatchState:
        """Send the same bytes again without asking the ledger; the operator knows better."""
        allowed = {BatchState.PARKED, BatchState.UNKNOWN}
        return self._change(
            "resubmit", service_id, batch_id, actor, reason, allowed, BatchState.DELAYED
        )

    def resolve(
        self, service_id: str, batch_id: str, to: BatchState, *, actor: Actor, reason: str
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
        actor: Actor,
        reason: str,
        allowed: set[BatchState],
        to: BatchState | None,
    ) -> BatchState:
        reason = clean_note(reason.strip())
        if not reason:
            raise LedgerError("a reason must be given; it goes into the audit")
        with self._actions.locked(service_id, batch_id) as batch:
            if batch.state not in allowed:
                raise BatchBusy(_why_not(action, batch.state, allowed))
            if not batch.possible and to in (None, BatchState.DELAYED):
                # It never left, so it may not even be first in line.
                to = BatchState.NEW
            to = to or BatchState.UNKNOWN
            act = Act(
                name=action,
                actor=actor,
                reason=reason,
                to=to,
                anew=action in ("resume", "resubmit"),
                clears=(PARKED_ALERT, ANOMALY_ALERT),
            )
            self._actions.change(batch, act)
        if to in FINAL_STATES:
            self._tell(
                [
                    Finished(
                        service_id=service_id,
                        batch_id=batch_id,
                        state=to,
                        tx_id=batch.tx_id,
                        switch=batch.switch,
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
