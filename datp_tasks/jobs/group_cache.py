"""Keep the copies of node groups in Redis like the record.

Moves:    nothing; writes nodeGroupH:<name> from SQL.
Knows:    everything it needs is in SQL.
Bound:    the number of node groups.
Overlap:  harmless: both write the same.
Crash:    the next run does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.record.groups import GroupStore


@dataclass(frozen=True, slots=True)
class Result:
    refreshed: int


def run_once(groups: GroupStore) -> Result:
    return Result(refreshed=len(groups.refresh()))
