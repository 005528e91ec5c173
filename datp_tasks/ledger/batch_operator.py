"""What operators can do to a batch. Each act is one commit with a line in the audit."""

from __future__ import annotations

from datp_tasks.errors import BatchBusy, LedgerError, SubjectMoved
from datp_tasks.ledger.batch_types import Finished, Tell
from datp_tasks.model.actor import Actor
from datp_tasks.model.approval import ApprovalGate, Ask, Order
from datp_tasks.model.ledger_batch import FINAL_STATES, TO_ASK, BatchState
from datp_tasks.model.notes import clean_note
from datp_tasks.record.database import Connection
from datp_tasks.record.ledger_actions import Act, BatchActions, LockedBatch
from datp_tasks.record.ledger_batches import ANOMALY_ALERT, PARKED_ALERT, subject_of

ALLOWED = {
    "park": {BatchState.NEW, BatchState.DELAYED, *TO_ASK},
    "resume": {BatchState.PARKED},
    "resubmit": {BatchState.PARKED, BatchState.UNKNOWN},
    "resolve": {BatchState.PARKED},
}
#: What may need a second person.
GUARDED = ("batch.resolve", "batch.resubmit")


class BatchOperator:
    def __init__(self, actions: BatchActions, tell: Tell, gate: ApprovalGate) -> None:
        self._actions = actions
        self._tell = tell
        self._gate = gate

    def park(self, service_id: str, batch_id: str, *, actor: Actor, reason: str) -> BatchState:
        """Keep a batch, and with it the ones behind it, until it is resumed."""
        return self._change(_order("park", service_id, batch_id, actor, reason, BatchState.PARKED))

    def resume(self, service_id: str, batch_id: str, *, actor: Actor, reason: str) -> BatchState:
        """Let a parked batch go on: the ledger is asked first if it may have it already."""
        return self._change(_order("resume", service_id, batch_id, actor, reason, None))

    def resubmit(
        self,
        service_id: str,
        batch_id: str,
        *,
        actor: Actor,
        reason: str,
        break_glass: bool = False,
    ) -> BatchState:
        """Send the same bytes again without asking the ledger; the operator knows better."""
        order = _order("resubmit", service_id, batch_id, actor, reason, BatchState.DELAYED)
        return self._guarded(order, break_glass)

    def resolve(
        self,
        service_id: str,
        batch_id: str,
        to: BatchState,
        *,
        actor: Actor,
        reason: str,
        break_glass: bool = False,
    ) -> BatchState:
        """End a parked batch as COMMITTED or INVALID, as the operator found it to be."""
        if to not in (BatchState.COMMITTED, BatchState.INVALID):
            raise LedgerError("a batch can be resolved as COMMITTED or as INVALID")
        order = _order("resolve", service_id, batch_id, actor, reason, to)
        return self._guarded(order, break_glass)

    def _guarded(self, order: Order, break_glass: bool) -> BatchState:
        """ApprovalNeeded is raised if the policy wants another person to agree."""
        service_id, batch_id = order.params["service"], order.params["batch"]
        with self._actions.locked(service_id, batch_id) as batch:
            _check_allowed(order, batch)
        ask = Ask(
            action=order.action,
            subject=order.subject,
            params=order.params,
            version=_version(batch),
            reason=order.reason,
        )
        return BatchState(self._gate.perform(order.actor, ask, break_glass=break_glass))

    def _change(self, order: Order) -> BatchState:
        with self._actions.transaction() as connection:
            token = self.decide(connection, order)
        return BatchState(self.carry_out(order, token))

    # As an action of the gate.

    def decide(self, connection: Connection, order: Order) -> str:
        """All of it is in SQL; the state that it is in then."""
        service_id, batch_id = order.params["service"], order.params["batch"]
        batch = self._actions.lock(connection, service_id, batch_id)
        _check_allowed(order, batch)
        if order.version and order.version != _version(batch):
            raise SubjectMoved(f"the batch was {order.version} and is {_version(batch)}")
        to = BatchState(order.params["to"]) if order.params["to"] else None
        if not batch.possible and to in (None, BatchState.DELAYED):
            # It never left, so it may not even be first in line.
            to = BatchState.NEW
        to = to or BatchState.UNKNOWN
        action = order.action.removeprefix("batch.")
        act = Act(
            name=action,
            actor=order.actor,
            reason=order.reason,
            to=to,
            anew=action in ("resume", "resubmit"),
            clears=(PARKED_ALERT, ANOMALY_ALERT),
            details=order.audit_details,
        )
        self._actions.change(batch, act)
        return str(to)

    def carry_out(self, order: Order, token: str | None) -> str:
        """A transaction that waits for the batch is told; else it looks by itself, later."""
        to = BatchState(token or "")
        if to in FINAL_STATES:
            service_id, batch_id = order.params["service"], order.params["batch"]
            with self._actions.locked(service_id, batch_id) as batch:
                waiting = (batch.tx_id, batch.switch)
            finished = Finished(
                service_id=service_id,
                batch_id=batch_id,
                state=to,
                tx_id=waiting[0],
                switch=waiting[1],
            )
            self._tell([finished])
        return str(to)


def _order(
    action: str, service_id: str, batch_id: str, actor: Actor, reason: str, to: BatchState | None
) -> Order:
    reason = clean_note(reason.strip())
    if not reason:
        raise LedgerError("a reason must be given; it goes into the audit")
    return Order(
        action=f"batch.{action}",
        subject=subject_of(service_id, batch_id),
        params={"service": service_id, "batch": batch_id, "to": to and str(to)},
        version="",
        reason=reason,
        actor=actor,
    )


def _version(batch: LockedBatch) -> str:
    """Changes with its state, and with every attempt that may have reached the ledger."""
    return f"{batch.state} after {batch.possible}"


def _check_allowed(order: Order, batch: LockedBatch) -> None:
    action = order.action.removeprefix("batch.")
    if batch.state not in ALLOWED[action]:
        raise BatchBusy(_why_not(action, batch.state, ALLOWED[action]))


def _why_not(action: str, found: BatchState, allowed: set[BatchState]) -> str:
    if found is BatchState.SUBMITTING:
        return f"it is being submitted right now; try to {action} it again in a few seconds"
    if found in FINAL_STATES:
        return f"it has ended: {found}"
    return f"it is {found}; to {action} it, it must be {' or '.join(sorted(allowed))}"
