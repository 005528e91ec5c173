"""Write states that are due to SQL, and let those of ended transactions leave Redis.

Moves:    final -> archived (a TTL is set). A sleeping transaction is copied and stays.
Knows:    the version it wrote. A state that changed meanwhile stays due.
Bound:    `archiver_batch_max` at a time, ROUNDS_MAX times a run.
Overlap:  harmless: an older version never replaces a newer one in SQL.
Crash:    nothing leaves the list before it is written and confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.connections import Connections
from datp_tasks.model.payload import encode

ROUNDS_MAX = 10


@dataclass(frozen=True, slots=True)
class Result:
    archived: int


def run_once(connections: Connections) -> Result:
    live, batch_max = connections.live, connections.settings.archiver_batch_max
    archived = 0
    for _ in range(ROUNDS_MAX):
        due = live.due("toArchiveZ", batch_max=batch_max)
        found = list(zip(due, live.fields_many(due), strict=True))
        states = [(tx, int(fields["version"]), encode(fields)) for tx, fields in found if fields]
        if states:
            connections.record.save_states(states)
        # Also those that are gone from Redis: confirming takes them off the list.
        archived += live.confirm_archived_many(
            [(tx, fields.get("version", "")) for tx, fields in found]
        )
        if len(due) < batch_max:
            break
    return Result(archived=archived)
