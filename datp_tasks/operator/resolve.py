"""Deciding about transactions in doubt.

Nothing here guesses: a transaction in doubt waits until an operator says what became of its step,
and the audit table keeps who said so and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from datp_tasks.bells.ringer import Ringer
from datp_tasks.errors import (
    DecisionInvalid,
    TransactionError,
    TransactionFinal,
    TransactionUnknown,
)
from datp_tasks.failpoints import reach
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.store import LiveStore
from datp_tasks.live.types import Bell, Held
from datp_tasks.model.notes import clean_note
from datp_tasks.model.payload import Json, NotJson, checked
from datp_tasks.model.plan import Action, next_action
from datp_tasks.model.state import CLOSE, Delta, apply, decided, ending
from datp_tasks.model.status import Status
from datp_tasks.model.view import View
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.database import Engine, translate_outage
from datp_tasks.record.effects import EffectStore
from datp_tasks.record.operator_actions import record_action
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
    vault: Vault

    def resolve(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str,
        output: Json | None = None,
        actor: str = "local",
    ) -> None:
        """Say what became of the step of a transaction that is in doubt.

        `done`: it took effect, with this output (None: its input goes on). `redo`: it had no
        effect, run it. `fail`: it failed; what was done before is rolled back. For a rollback in
        doubt, `fail` gives up rolling back and ends the transaction as internal-error.
        """
        if decision not in DECISIONS:
            raise DecisionInvalid(f"decide done, redo or fail, was {decision!r}")
        if not reason.strip():
            raise DecisionInvalid("a decision needs a reason: it is kept in the audit table")
        output = self._checked_output(decision, output)
        view = self._in_doubt_view(tx_id)
        with translate_outage():
            output = self.vault.seal_like(view.state.data, tx_id, output)
        made, action = next_action(view.state, self.catalogue.version)
        deltas = [
            *made,
            *self._decision_deltas(tx_id, decision, clean_note(reason), output, action),
        ]
        for delta in deltas[len(made) :]:
            apply(view.state, delta)
        fence = self._decide_in_sql(tx_id, view.fence, decision, reason, actor, action)
        if decision == "redo":
            self._forget_begun(tx_id, view, action)
        reach("resolve.after_sql")
        held = Held(tx_id, fence, tuple(deltas))
        to = action.position("admin") if action.kind != "end" else None
        bell = self.live.resolve(held, view.version, view.state.to_json(), to)
        if not isinstance(bell, Bell):
            raise TransactionError(f"{tx_id} has changed meanwhile ({bell.word}); look again")
        self.alerts.clear_alert(LOST, tx_id)
        self.ringer.ring([bell])

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
        key = f"{tx_id}:{action.path}#{view.state.errors}.{view.state.sleeps}"
        self.begun_steps.forget(tx_id, key)

    def _decide_in_sql(
        self, tx_id: str, fence: int, decision: Decision, reason: str, actor: str, action: Action
    ) -> int:
        """The audit row, and the status in SQL; the new fence."""
        details = {"decision": decision, "step": action.place, "type": action.step_type}
        with translate_outage():
            now_ms = max(fence, self.live.server_now_ms())
            raised = self.record.raise_fences([(tx_id, now_ms)])
            if tx_id not in raised:
                raise TransactionError(f"{tx_id} has ended, or another process holds it just now")
            record_action(
                self.engine,
                actor=actor,
                action="resolve",
                subject=tx_id,
                reason=reason,
                details=details,
            )
            self.record.mark(tx_id, raised[tx_id], Status.QUEUED, f"resolved: {reason}")
        return raised[tx_id]
