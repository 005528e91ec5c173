"""Carry out what was approved by a process that died then, and end requests that were not decided.

Moves:    approvals that are approved -> executed (or stale), and pending ones -> expired.
Knows:    what SQL says; an approval that another process holds is passed over.
Bound:    `batch_max` approvals of each kind, and ITEMS_MAX transactions of a bulk action, per run.
Overlap:  harmless: an approval is held by one process, and what it does is safe to repeat.
Crash:    the next run finds the same and does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.model.actor import Actor
from datp_tasks.operator.approvals import Approvals

ACTOR = Actor(name="job approvals")


@dataclass(frozen=True, slots=True)
class Result:
    carried_out: int
    expired: int


def run_once(approvals: Approvals, *, batch_max: int) -> Result:
    expired = approvals.store.expire_due(batch_max)
    carried_out = approvals.carry_out_undone(ACTOR, batch_max=batch_max)
    return Result(carried_out=carried_out, expired=len(expired))
