"""Making one transaction go on now: wake it, run its step again, or ring again."""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.bells.ringer import Ringer
from datp_tasks.errors import ApprovalNeeded, DatpError, TransactionHeld, TransactionMoved
from datp_tasks.live.live_types import Bell
from datp_tasks.live.store import LiveStore
from datp_tasks.model.actor import LOCAL, Actor
from datp_tasks.model.approval import Approval
from datp_tasks.model.status import Status
from datp_tasks.operator.action_result import ActionResult
from datp_tasks.operator.resolve import Resolver
from datp_tasks.record.database import Engine, translate_outage
from datp_tasks.record.operator_actions import record_action
from datp_tasks.record.record_types import Precondition
from datp_tasks.transactions.locate import Locator
from datp_tasks.transactions.send_signals import SignalSender


@dataclass(frozen=True, kw_only=True)
class Retrier:
    engine: Engine
    live: LiveStore
    ringer: Ringer
    locator: Locator
    signals: SignalSender
    resolver: Resolver

    def retry(
        self,
        tx_id: str,
        *,
        reason: str,
        actor: Actor = LOCAL,
        only_if: Precondition | None = None,
    ) -> ActionResult:
        """Make one transaction go on; what is impossible is told, not raised.

        ApprovalNeeded is raised if the policy wants another person to agree, TransactionMoved if
        it is not as `only_if` says.
        """
        try:
            what = self.resume(tx_id, reason, actor, None, only_if=only_if)
            return ActionResult(tx_id, what, True)
        except (ApprovalNeeded, TransactionMoved):
            raise
        except DatpError as error:
            if only_if and isinstance(error, TransactionHeld):
                raise
            return ActionResult(tx_id, str(error), False)

    def resume(
        self,
        tx_id: str,
        reason: str,
        actor: Actor,
        approval: Approval | None,
        *,
        only_if: Precondition | None = None,
    ) -> str:
        """What was done. `approval` is that of the bulk action of which this is a part."""
        found = self.locator.status(tx_id)
        status = found.status
        if status is Status.IN_DOUBT:
            if approval is not None:
                self.resolver.redo(tx_id, reason=reason, actor=actor, approval=approval)
            else:
                self.resolver.resolve(tx_id, "redo", reason=reason, actor=actor, only_if=only_if)
            return "its step is run again"
        if status is Status.SLEEPING:
            woken = self.signals.wake(tx_id, by=actor, only_if=only_if)
            return "woken" if woken else "did not sleep any more"
        # To ring again changes nothing of the transaction, so there is nothing to hold it by.
        if only_if and not only_if(found):
            raise TransactionMoved(f"{tx_id} is not as it was seen any more: {status}")
        if status is not Status.QUEUED:
            return f"nothing to do; it is {status}"
        with translate_outage():
            record_action(
                self.engine,
                actor=actor,
                action="transaction.retry",
                subject=tx_id,
                reason=reason,
            )
        bell = self.live.ring_again_many([tx_id])[0]
        self.ringer.ring([bell if isinstance(bell, Bell) else None])
        return "rung again" if isinstance(bell, Bell) else f"nothing to do; it is {status}"
