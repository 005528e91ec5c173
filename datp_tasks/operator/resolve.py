"""Deciding about transactions in doubt.

Nothing here guesses: a transaction in doubt waits until an operator says what became of its step,
and the audit table keeps who said so and why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from datp_tasks.bells.ringer import Ringer
from datp_tasks.errors import (
    ApprovalForbidden,
    DecisionInvalid,
    TransactionError,
    TransactionFinal,
    TransactionHeld,
    TransactionMoved,
    TransactionUnknown,
)
from datp_tasks.failpoints import reach
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.live_types import Bell, Held
from datp_tasks.live.store import LiveStore
from datp_tasks.model.actor import LOCAL, Actor
from datp_tasks.model.approval import Approval, ApprovalGate, Ask, Order
from datp_tasks.model.notes import clean_note
from datp_tasks.model.payload import Json, NotJson, checked
from datp_tasks.model.plan import Action, next_action
from datp_tasks.model.state import CLOSE, Delta, apply, decided, ending
from datp_tasks.model.status import Status
from datp_tasks.model.view import View
from datp_tasks.operator.audit import Auditor
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.database import Connection, Engine, translate_outage
from datp_tasks.record.effects import EffectStore
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.record_types import Mark, Precondition
from datp_tasks.record.step_starts import BegunSteps
from datp_tasks.record.transactions import Record
from datp_tasks.record.vault import Vault
from datp_tasks.settings import Settings
from datp_tasks.transactions.restore import LOST

Decision = Literal["done", "redo", "fail"]
DECISIONS = ("done", "redo", "fail")


@dataclass(frozen=True, kw_only=True)
class Resolver:
    settings: Settings
    engine: Engine
    record: Record
    live: LiveStore
    catalogue: Catalogue
    ringer: Ringer
    alerts: Alerts
    begun_steps: BegunSteps
    effects: EffectStore
    auditor: Auditor
    gate: ApprovalGate
    vault: Vault

    def resolve(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str,
        output: Json | None = None,
        actor: Actor = LOCAL,
        break_glass: bool = False,
        only_if: Precondition | None = None,
    ) -> None:
        """Say what became of the step of a transaction that is in doubt.

        `done`: it took effect, with this output (None: its input goes on). `redo`: it had no
        effect, run it. `fail`: it failed; what was done before is rolled back. For a rollback in
        doubt, `fail` gives up rolling back and ends the transaction as internal-error.
        ApprovalNeeded is raised if the policy wants another person to agree; TransactionMoved
        if it is not as `only_if` says when the decision is committed.
        """
        if decision not in DECISIONS:
            raise DecisionInvalid(f"decide done, redo or fail, was {decision!r}")
        if not reason.strip():
            raise DecisionInvalid("a decision needs a reason: it is kept in the audit table")
        output = self._checked_output(decision, output)
        view = self._in_doubt_view(tx_id)
        with translate_outage():
            # After the view: what happens from now on has another version, and is refused.
            [found] = self.record.summaries([tx_id])
            if only_if and not only_if(replace(found, status=Status.IN_DOUBT)):
                raise TransactionMoved(f"{tx_id} is not as it was seen any more")
            # From here on it rests: in a request for approval, the audit and the journal.
            output = self.vault.seal_like(view.state.data, tx_id, output)
        self.gate.perform(
            actor, self._ask(tx_id, view, decision, reason, output), break_glass=break_glass
        )

    def redo(self, tx_id: str, *, reason: str, actor: Actor, approval: Approval) -> None:
        """Run the step again, as part of a bulk action that was approved as a whole."""
        view = self._in_doubt_view(tx_id)
        if not self.gate.covers(approval, self._ask(tx_id, view, "redo", reason, None)):
            raise ApprovalForbidden(
                f"to run its step again takes more than approval {approval.id} has; ask for it "
                f"alone: datp resolve {tx_id} --redo"
            )
        order = Order(
            action="resolve.redo",
            subject=tx_id,
            params={"decision": "redo", "output": None},
            version=str(view.version),
            reason=reason,
            actor=actor,
        )
        with translate_outage(), self.engine.begin() as connection:
            token = self.decide(connection, order)
        self.carry_out(order, token)

    def _ask(
        self, tx_id: str, view: View, decision: Decision, reason: str, output: Json | None
    ) -> Ask:
        _, action = next_action(view.state, self.catalogue.version)
        name = f"resolve.{decision}"
        with translate_outage():
            (found,) = self.record.summaries([tx_id])
            summary = self.vault.opened(found)
            if decision == "redo" and self._may_have_had_effect(tx_id, view, action):
                name = "resolve.redo-effect"
        return Ask(
            action=name,
            subject=tx_id,
            params={
                "decision": decision,
                "output": output,
                "step": action.place,
                "type": action.step_type,
            },
            version=str(view.version),
            reason=reason,
            pipeline=summary.pipeline,
            data=summary.input,
        )

    def _may_have_had_effect(self, tx_id: str, view: View, action: Action) -> bool:
        """The step is not safe to run again, and had begun."""
        key = _begun_key(tx_id, view, action)
        return any(step_key == key for step_key, _ in self.begun_steps.of(tx_id))

    # As an action of `approvals.Approvals`.

    def decide(self, connection: Connection, order: Order) -> str:
        """The audit row, the status in SQL and a new fence; the fence is for the other half."""
        tx_id = order.subject
        view = self._in_doubt_view(tx_id)
        if str(view.version) != order.version:
            raise TransactionError(f"{tx_id} has changed meanwhile; look again")
        _, action = next_action(view.state, self.catalogue.version)
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
        reach("resolve.after_sql")
        fence = int(token or 0)
        fields, lines = ArchiveFeed(self.live).copies([tx_id])[0]
        if fields.get("status") != Status.IN_DOUBT or fields.get("version") != order.version:
            return self._carried_out_before(order, fence)
        view = View.from_fields(fields, lines)
        made, action = next_action(view.state, self.catalogue.version)
        note = clean_note(order.reason)
        output = order.params["output"]
        deltas = [*made, *self._decision_deltas(tx_id, decision, note, output, action)]
        if decision == "redo":
            self._forget_begun(tx_id, view, action)
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
        for entry in self.auditor.deltas(order.subject):
            if str(entry.before) == order.version and entry.fence == fence:
                return f"resolved as {order.params['decision']}"
        raise TransactionError(f"{order.subject} has changed meanwhile; look again")

    def _decision_deltas(
        self, tx_id: str, decision: Decision, reason: str, output: Json | None, action: Action
    ) -> list[Delta]:
        if decision == "redo":
            # A recorded effect is found by the next claim, if the step is still open. A cancel
            # would be heeded before that otherwise, and leave the effect in place.
            key = f"{tx_id}:{action.path}{':undo' if action.kind == 'undo' else ''}"
            with translate_outage():
                return [] if self.effects.is_recorded(tx_id, key) else [CLOSE]
        if decision == "done":
            return [decided("done", reason, output)]
        if action.kind == "undo":
            return [ending(Status.INTERNAL_ERROR, f"not rolled back: {reason}", output)]
        return [decided("failed", reason, output)]

    def _checked_output(self, decision: Decision, output: Json | None) -> Json | None:
        if output is None:
            return None
        if decision == "redo":
            raise DecisionInvalid("a step that is run again makes its own output")
        settings = self.settings
        try:
            return checked(
                output,
                what="output",
                bytes_max=settings.output_bytes_max,
                depth_max=settings.input_depth_max,
            )[0]
        except NotJson as error:
            raise DecisionInvalid(str(error)) from None

    def _in_doubt_view(self, tx_id: str) -> View:
        fields, deltas = ArchiveFeed(self.live).copies([tx_id])[0]
        if fields.get("status") == Status.IN_DOUBT:
            return View.from_fields(fields, deltas)
        with translate_outage():
            found = self.record.summaries([tx_id])
        if not found:
            raise TransactionUnknown(f"there is no transaction {tx_id!r}")
        if found[0].is_final:
            raise TransactionFinal(f"{tx_id} has ended: {found[0].status}")
        status = fields.get("status", found[0].status)
        raise TransactionError(f"{tx_id} is not in doubt; it is {status}")

    def _forget_begun(self, tx_id: str, view: View, action: Action) -> None:
        self.begun_steps.forget(tx_id, _begun_key(tx_id, view, action))


def _begun_key(tx_id: str, view: View, action: Action) -> str:
    return f"{tx_id}:{action.path}#{view.state.errors}.{view.state.sleeps}"
