"""Deciding about transactions in doubt.

Nothing here guesses: a transaction in doubt waits until an operator says what became of its step,
and the audit table keeps who said so and why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from datp_tasks.errors import ApprovalForbidden, DecisionInvalid, TransactionMoved
from datp_tasks.model.actor import LOCAL, Actor
from datp_tasks.model.approval import Approval, ApprovalGate, Ask, Order
from datp_tasks.model.payload import DEPTH_MAX, OUTPUT_BYTES_MAX, Json, NotJson, checked
from datp_tasks.model.status import Status
from datp_tasks.model.view import View
from datp_tasks.operator.doubt_decisions import DECISIONS, Decision, DoubtDecisions
from datp_tasks.operator.doubts import Doubts
from datp_tasks.record.database import Engine, translate_outage
from datp_tasks.record.record_types import Precondition
from datp_tasks.record.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Resolver:
    engine: Engine
    doubts: Doubts
    decisions: DoubtDecisions
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
        view = self.doubts.view(tx_id)
        with translate_outage():
            # After the view: what happens from now on has another version, and is refused.
            found = self.doubts.summary(tx_id)
            if only_if and not only_if(replace(found, status=Status.IN_DOUBT)):
                raise TransactionMoved(f"{tx_id} is not as it was seen any more")
            # From here on it rests: in a request for approval, the audit and the journal.
            output = self.vault.seal_like(view.state.data, tx_id, output)
        self.gate.perform(
            actor, self._ask(tx_id, view, decision, reason, output), break_glass=break_glass
        )

    def redo(self, tx_id: str, *, reason: str, actor: Actor, approval: Approval) -> None:
        """Run the step again, as part of a bulk action that was approved as a whole."""
        view = self.doubts.view(tx_id)
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
            token = self.decisions.decide(connection, order)
        self.decisions.carry_out(order, token)

    def _ask(
        self, tx_id: str, view: View, decision: Decision, reason: str, output: Json | None
    ) -> Ask:
        _, action = self.doubts.next_action(view)
        name = f"resolve.{decision}"
        with translate_outage():
            summary = self.vault.opened(self.doubts.summary(tx_id))
            if decision == "redo" and self.doubts.may_have_had_effect(tx_id, view, action):
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

    def _checked_output(self, decision: Decision, output: Json | None) -> Json | None:
        if output is None:
            return None
        if decision == "redo":
            raise DecisionInvalid("a step that is run again makes its own output")
        try:
            value, _ = checked(
                output, what="output", bytes_max=OUTPUT_BYTES_MAX, depth_max=DEPTH_MAX
            )
        except NotJson as error:
            raise DecisionInvalid(str(error)) from None
        return value
