"""Showing what is sealed to an operator: never without a reason, and never unrecorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from datp_tasks.errors import DecisionInvalid, TransactionUnknown
from datp_tasks.model.actor import Actor
from datp_tasks.model.journal import Entry
from datp_tasks.model.log_lines import LogLine
from datp_tasks.model.payload import Json
from datp_tasks.operator.audit import Auditor
from datp_tasks.operator.transaction_logs import opened_lines
from datp_tasks.record.approvals import ApprovalStore
from datp_tasks.record.database import Engine, translate_outage
from datp_tasks.record.operator_actions import record_action
from datp_tasks.record.record_types import Summary
from datp_tasks.record.transactions import Record
from datp_tasks.record.vault import Vault


@dataclass(frozen=True, slots=True)
class Unmasked:
    summary: Summary
    #: What unexpected exceptions of its steps said, the oldest first.
    errors: list[str]
    #: What a second person is or was asked for, the newest first: number and parameters.
    approvals: list[tuple[int, Json]]
    #: What its steps logged.
    lines: list[LogLine]


@dataclass(frozen=True, kw_only=True)
class Unmasker:
    engine: Engine
    record: Record
    auditor: Auditor
    vault: Vault
    approvals: ApprovalStore

    def unmask(self, tx_id: str, *, actor: Actor, reason: str) -> Unmasked:
        """The transaction as its owner sees it. The audit row is committed first."""
        if not reason.strip():
            raise DecisionInvalid("to see what is sealed needs a reason: the audit table keeps it")
        with translate_outage():
            found = self.record.summaries([tx_id])
            if not found:
                raise TransactionUnknown(f"there is no transaction {tx_id!r}")
            record_action(
                self.engine,
                actor=actor,
                action="transaction.unmask",
                subject=tx_id,
                reason=reason,
            )
            opened = self.vault.opened(found[0])
            entries = self.auditor.deltas(tx_id)
            lines = opened_lines(tx_id, entries, self.vault)
            return Unmasked(opened, self._errors(tx_id, entries), self._approvals(tx_id), lines)

    def _approvals(self, tx_id: str) -> list[tuple[int, Json]]:
        return [
            (each.id, {name: self.vault.open(tx_id, part) for name, part in each.params.items()})
            for each in self.approvals.page(subject=tx_id)
        ]

    def _errors(self, tx_id: str, entries: Sequence[Entry]) -> list[str]:
        deltas = [json.loads(line) for entry in entries for line in entry.deltas]
        return [str(self.vault.open(tx_id, each["why"])) for each in deltas if each.get("why")]
