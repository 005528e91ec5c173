"""What people decide for a pipeline: the step that asked is woken, and reads the decision."""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.errors import TransactionError, TransactionFinal
from datp_tasks.model.approval import Order
from datp_tasks.record.database import Connection
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.send_signals import SignalSender


@dataclass(frozen=True, kw_only=True)
class StepApproval:
    record: Record
    signals: SignalSender

    def decide(self, _: Connection, order: Order) -> None:
        """Nothing but the approval itself, which the step reads."""
        found = self.record.summaries([order.subject])
        if not found or found[0].is_final:
            raise TransactionFinal(f"{order.subject} has ended")

    def carry_out(self, order: Order, _: str | None) -> str:
        """The switch only wakes it. One that cannot be woken now looks by itself, later."""
        assert order.approval is not None
        number = order.approval.id
        try:
            self.signals.set_switch(order.subject, f"approval-{number}", str(order.approval.state))
        except TransactionError as error:
            return f"decided; not woken: {error}"
        return "decided, and woken"
