"""Doing what was decided about a transaction in doubt: commit it to SQL, then queue it in Redis.

The two halves are an action of `operator/approvals.py`, which may run them in different processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from datp_tasks.bells.ringer import Ringer
from datp_tasks.errors import TransactionError, TransactionHeld
from datp_tasks.failpoints import reach
from datp_tasks.live.live_types import Bell, Held
from datp_tasks.live.store import LiveStore
from datp_tasks.model.approval import Order
from datp_tasks.model.notes import clean_note
from datp_tasks.model.payload import Json
from datp_tasks.model.plan import Action
from datp_tasks.model.state import CLOSE, Delta, apply, decided, ending
from datp_tasks.model.status import Status
from datp_tasks.operator.doubts import Doubts
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.database import Connection
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.record_types import Mark
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.rebuild_lost import LOST

Decision = Literal["done", "redo", "fail"]
DECISIONS = ("done", "redo", "fail")
UNKNOWN_DECISION = "nothing was done to {}: {!r:.60} is not a decision. Ask for it again"


@dataclass(frozen=True, kw_only=True)
class DoubtDecisions:
    doubts: Doubts
    record: Record
    live: LiveStore
    alerts: Alerts
    ringer: Ringer

    def decide(self, connection: Connection, order: Order) -> str:
        """The audit row, the status in SQL and a new fence; the fence is for the other half."""
        tx_id = order.subject
        _check_decision(order)
        view = self.doubts.view(tx_id)
        if str(view.version) != order.version:
            raise TransactionError(f"{tx_id} has changed meanwhile; look again")
        _, action = self.doubts.next_action(view)
        details: dict[str, Any] = {
            "decision": order.params["decision"],
            "step": action.place,
            "type": action.step_type,
            **order.audit_details,
        }
        if order.params["output"] is not None:
            # What a person put into the books must be readable for as long as the audit is.
            details["output"] = order.params["output"]
        found = self.record.summaries([tx_id])
        # Above every fence that was given: the journal then tells whose decision it was.
        fence = max(view.fence, self.live.server_now_ms(), *(each.fence for each in found))
        own = self.record.fence_of_decision(tx_id, fence, connection)
        if own is None:
            raise TransactionHeld(f"{tx_id} has ended, or another process holds it just now")
        note_action(
            connection,
            actor=order.actor,
            action="resolve",
            subject=tx_id,
            reason=order.reason,
            details=details,
        )
        mark = Mark(tx_id, own, f"resolved: {order.reason}")
        self.record.mark_many([mark], Status.QUEUED, connection=connection)
        return str(own)

    def carry_out(self, order: Order, token: str | None) -> str:
        """Queue it in Redis, with the decision. Of several that try, one does."""
        tx_id, decision = order.subject, order.params["decision"]
        _check_decision(order)
        reach("resolve.after_sql")
        fence = int(token or 0)
        view = self.doubts.view_of_version(tx_id, order.version)
        if view is None:
            return self._carried_out_before(order, fence)
        made, action = self.doubts.next_action(view)
        note = clean_note(order.reason)
        output = order.params["output"]
        deltas = [*made, *self._deltas(tx_id, decision, note, output, action)]
        if decision == "redo":
            self.doubts.forget_begun(tx_id, view, action)
        for delta in deltas[len(made) :]:
            apply(view.state, delta)
        held = Held(tx_id, fence, tuple(deltas))
        to = action.position("admin") if action.kind != "end" else None
        bell = self.live.resolve(held, view.version, view.state.to_json(), to)
        if not isinstance(bell, Bell):
            return self._carried_out_before(order, fence)
        self.alerts.clear_alert(LOST, tx_id)
        self.ringer.ring([bell])
        return f"resolved as {decision}"

    def _carried_out_before(self, order: Order, fence: int) -> str:
        """Its journal tells whether this decision moved it, or another one did."""
        if self.doubts.was_moved_by(order.subject, order.version, fence):
            return f"resolved as {order.params['decision']}"
        raise TransactionError(f"{order.subject} has changed meanwhile; look again")

    def _deltas(
        self, tx_id: str, decision: Decision, reason: str, output: Json | None, action: Action
    ) -> list[Delta]:
        if decision == "redo":
            # A recorded effect is found by the next claim, if the step is still open. A cancel
            # would be heeded before that otherwise, and leave the effect in place.
            return [] if self.doubts.has_recorded_effect(tx_id, action) else [CLOSE]
        if decision == "done":
            return [decided("done", reason, output)]
        if decision != "fail":
            raise TransactionError(UNKNOWN_DECISION.format(tx_id, decision))
        if action.kind == "undo":
            return [ending(Status.INTERNAL_ERROR, f"not rolled back: {reason}", output)]
        return [decided("failed", reason, output)]


def _check_decision(order: Order) -> None:
    """What is not known must not be taken for a failure: the step would be undone."""
    if order.params.get("decision") not in DECISIONS:
        said = order.params.get("decision")
        raise TransactionError(UNKNOWN_DECISION.format(order.subject, said))
