"""What must be true of a transaction once it has ended and everything has come to rest."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import text

from datp_tasks.live.invariants import check_all
from datp_tasks.model.status import FINAL, Status
from datp_tasks.record.record_types import Summary
from datp_tasks.runtime.container import Container

#: Without what the history tells of one that goes on, such as a point of no return.
CHANGES = (
    "SELECT status FROM tx_state_change WHERE tx_id = :tx_id "
    "AND (status <> 'queued' OR detail IS NULL) ORDER BY id"
)
KNOWN = "SELECT tx_id FROM tx_summary WHERE tx_id = ANY(:tx_ids)"
ARCHIVED = "SELECT version, fields FROM tx_state WHERE tx_id = :tx_id"
#: Lists that are empty when there is nothing to do.
EMPTY_AT_REST = ("queuedZ", "processingZ")


def transaction_violations(
    connections: Container, summary: Summary, *, archived: bool = True
) -> Iterator[str]:
    """One end in the record, and the same in Redis and (unless not `archived`) in the archive."""
    found = list(_record_violations(connections, summary))
    if summary.is_final:
        found += _live_violations_of(connections, summary)
    if summary.is_final and archived:
        found += _archive_violations(connections, summary)
    for each in found:
        yield f"{summary.tx_id}: {each}"


def live_violations(connections: Container) -> Iterator[str]:
    """What is wrong in Redis, when nothing should be going on."""
    for violation in check_all(connections.live):
        yield f"{violation.tx_id}: {violation.what}"
    sizes = connections.live.sizes()
    for name in EMPTY_AT_REST:
        if sizes[name]:
            yield f"{sizes[name]} are left in {name}"
    yield from _unknown_to_sql(connections)


def _record_violations(connections: Container, summary: Summary) -> Iterator[str]:
    with connections.engine.connect() as sql:
        statuses = list(sql.execute(text(CHANGES), {"tx_id": summary.tx_id}).scalars())
    finals = [status for status in statuses if status in FINAL]
    if finals != ([str(summary.status)] if summary.is_final else []):
        yield f"it is {summary.status}, and the history says {', '.join(statuses)}"
    if statuses.count(Status.QUEUED) != 1:
        yield f"it was accepted {statuses.count(Status.QUEUED)} times"


def _unknown_to_sql(connections: Container) -> Iterator[str]:
    """Only what was accepted may be in Redis."""
    live = connections.live
    keys = live.redis.scan_iter(match=live.keys.in_shard("*", "stateH:*"), count=1_000)
    here = {key.rpartition(":")[2] for key in keys}
    with connections.engine.connect() as sql:
        known = set(sql.execute(text(KNOWN), {"tx_ids": list(here)}).scalars())
    for tx_id in sorted(here - known):
        yield f"{tx_id} is in Redis, but was never accepted"


def _live_violations_of(connections: Container, summary: Summary) -> Iterator[str]:
    fields = connections.live.fields_many([summary.tx_id])[0]
    if fields and fields["status"] != summary.status:
        yield f"Redis says {fields['status']}, SQL says {summary.status}"
    if fields and _was_overtaken(summary, int(fields["fence"])):
        yield f"it ended under fence {summary.fence}, but {fields['fence']} was given out"


def _was_overtaken(summary: Summary, fence: int) -> bool:
    """Whether a newer claim was there when it ended.

    A fence is the time at which it was given out. One of after the end is no fault: Redis fell back
    to before it, and a worker was quicker than the reconciler; SQL has refused that worker.
    """
    ended = summary.completed_at
    return summary.fence < fence and (ended is None or fence <= ended.timestamp() * 1_000)


def _archive_violations(connections: Container, summary: Summary) -> Iterator[str]:
    with connections.engine.connect() as sql:
        row = sql.execute(text(ARCHIVED), {"tx_id": summary.tx_id}).first()
    if row is None:
        yield "it is not in the archive"
        return
    status = json.loads(row.fields)["status"]
    if status != summary.status:
        yield f"the archive has it as {status}"
    fields = connections.live.fields_many([summary.tx_id])[0]
    if fields and row.version != int(fields["version"]):
        yield f"version {row.version} is archived, but the last is {fields['version']}"
