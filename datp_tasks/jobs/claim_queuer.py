"""Claim services for this instance, and ring for the batch that is first in line in each.

Moves:    SUBMITTING -> UNKNOWN where the end was not recorded or the claimant is gone; claims of
          instances that are gone change hands; then rings for NEW and DELAYED batches in turn.
Knows:    that a lease has run out; not whether its holder is dead or paused. So a claim changes
          hands with a higher epoch, and the holder of the old one is refused should it wake up.
Bound:    `CLAIMS_MAX` claims and `RUNG_MAX` batches a run.
Overlap:  harmless: rows that another run has locked are skipped, a doubled message is refused.
Crash:    what was claimed is found by the next run; after a lease, by another instance.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.ledger.queuer import Queuer


@dataclass(frozen=True, slots=True)
class Result:
    late: int
    claimed: int
    released: int
    rung: int


def run_once(queuer: Queuer) -> Result:
    tick = queuer.tick()
    return Result(late=tick.late, claimed=tick.claimed, released=tick.released, rung=tick.rung)
