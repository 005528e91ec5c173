"""Seal the audit: put the actions that are new into its chain of hashes.

Moves:    nothing; adds rows to audit_seal.
Knows:    everything it needs is in SQL.
Bound:    `rows_max` actions, the oldest first.
Overlap:  one after another, by an advisory lock of the transaction.
Crash:    nothing is sealed; the next run does it.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.record.audit_chain import AuditChain


@dataclass(frozen=True, slots=True)
class Result:
    sealed: int


def run_once(chain: AuditChain, *, rows_max: int) -> Result:
    return Result(sealed=chain.seal(rows_max=rows_max))
