"""Acting on many transactions at once: cancel, wake or retry those that were chosen.

Each action is one row in the audit table, with what was chosen and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from datp_tasks.errors import DatabaseUnavailable, DatpError, TransactionUnknown
from datp_tasks.failpoints import reach
from datp_tasks.live.store import LiveStore
from datp_tasks.model.actor import LOCAL, Actor
from datp_tasks.model.approval import Approval, Ask, Order, short_hash
from datp_tasks.model.status import Status
from datp_tasks.operator.action_result import ActionResult
from datp_tasks.operator.approvals import Approvals
from datp_tasks.operator.retry import Retrier
from datp_tasks.operator.selection import TransfersOfBulk, Where
from datp_tasks.record.database import Connection, Engine, translate_outage
from datp_tasks.record.listing import Listing
from datp_tasks.record.operator_actions import note_action
from datp_tasks.transactions.locate import Locator
from datp_tasks.transactions.send_signals import SignalSender

Action = Literal["cancel", "wake", "retry"]

#: An approver waits for so many; the job does the rest.
ITEMS_MAX = 500


@dataclass(frozen=True, kw_only=True)
class Bulk:
    engine: Engine
    live: LiveStore
    locator: Locator
    signals: SignalSender
    retrier: Retrier
    approvals: Approvals

    def act_on_many(
        self,
        action: Action,
        where: Where | TransfersOfBulk,
        tx_ids: Sequence[str],
        *,
        reason: str,
        actor: Actor = LOCAL,
        break_glass: bool = False,
    ) -> Iterator[ActionResult]:
        """One action on each; the audit table tells before what is meant to happen.

        ApprovalNeeded is raised if the policy finds that too many for one person. What was
        approved is done to exactly these, by the process that takes the last approval and by the
        job; so is what one person does alone with `break_glass`.
        """
        with translate_outage():
            pipelines = Listing(self.engine).pipelines_of(tx_ids)
        ask = Ask(
            action=f"bulk.{action}",
            # Apart from other bulk actions: several may be under way.
            subject=f"{len(tx_ids)} transactions {short_hash(tx_ids)}",
            params={"action": action, "where": where.to_json(), "count": len(tx_ids)},
            version="",
            reason=reason,
            pipeline=where.pipeline,
            pipelines=pipelines,
            size=len(tx_ids),
            items=tx_ids,
        )
        if not self.approvals.allows(ask):
            self.approvals.perform(actor, ask, break_glass=break_glass)
            # One person acted alone: what became of each so far. The job goes on with the rest.
            return iter(self._done_alone(ask))
        order = Order(
            action=ask.action,
            subject=ask.subject,
            params=ask.params,
            version="",
            reason=reason,
            actor=actor,
        )
        with translate_outage(), self.engine.begin() as connection:
            self.decide(connection, order)
        return (self._acted(action, tx_id, reason, actor) for tx_id in tx_ids)

    def _done_alone(self, ask: Ask) -> list[ActionResult]:
        store = self.approvals.store
        with translate_outage():
            found = store.page(subject=ask.subject)
            done = next(each for each in found if each.break_glass and each.action == ask.action)
            return [ActionResult(*each) for each in store.ended_items(done.id)]

    # As an action of the approvals.

    def decide(self, connection: Connection, order: Order) -> None:
        note_action(
            connection,
            actor=order.actor,
            action=f"bulk-{order.params['action']}",
            subject="transactions",
            reason=order.reason,
            details={
                "where": order.params["where"],
                "count": order.params["count"],
                **order.audit_details,
            },
        )

    def carry_out(self, order: Order, _: str | None) -> str | None:
        """Some of them; None as long as there are more. Each is acted on once."""
        assert order.approval is not None
        number, store = order.approval.id, self.approvals.store
        kind: Action = order.params["action"]
        for item in store.items(number, ITEMS_MAX):
            sequence = self.live.named_many([item.tx_id], ("sequence",))[0].get("sequence", "")
            if not item.is_taken:
                store.take_item(number, item.tx_id, sequence)
                reach("bulk.after_take")
            elif sequence != item.sequence and not self._is_repeated(kind, item.tx_id):
                # The process that took it died; it was acted on, because it has moved since.
                store.end_item(number, item.tx_id, ok=True, note="has moved")
                continue
            done = self._acted(kind, item.tx_id, order.reason, order.actor, order.approval)
            reach("bulk.after_act")
            store.end_item(number, item.tx_id, ok=done.ok, note=done.what)
        counts = store.item_counts(number)
        if counts.get("open", 0) + counts.get("taken", 0):
            return None
        return f"{counts.get('done', 0)} of {sum(counts.values())} done"

    def _is_repeated(self, action: Action, tx_id: str) -> bool:
        """A cancel that was not kept leaves a transaction that moves by itself, and asking twice
        does no harm."""
        if action != "cancel":
            return False
        try:
            return self.locator.status(tx_id).status is not Status.CANCELLED
        except TransactionUnknown:
            # Asking says so, and the others have their turn.
            return True

    def _acted(
        self,
        action: Action,
        tx_id: str,
        reason: str,
        actor: Actor,
        approval: Approval | None = None,
    ) -> ActionResult:
        """One of many; with the approval that all of it has."""
        try:
            return ActionResult(tx_id, self._act(action, tx_id, reason, actor, approval), True)
        except DatabaseUnavailable:
            # No refusal: what was kept before the outage may be carried out later.
            raise
        except DatpError as error:
            return ActionResult(tx_id, str(error), False)

    def _act(
        self, action: Action, tx_id: str, reason: str, actor: Actor, approval: Approval | None
    ) -> str:
        if action == "cancel":
            self.signals.cancel(tx_id, reason, by=actor)
            return f"cancel asked for; it is {self.locator.status(tx_id).status}"
        if action == "wake":
            return "woken" if self.signals.wake(tx_id, by=actor) else "did not sleep"
        return self.retrier.resume(tx_id, reason, actor, approval)
