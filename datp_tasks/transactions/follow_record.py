"""SQL is the record: a transaction that has ended there ends in Redis too.

Its finish script never ran, Redis lost it, or another process ended it first. The live copy ends
with the status that SQL has, whichever node holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from datp_tasks.live.store import LiveStore
from datp_tasks.record.record_types import Summary
from datp_tasks.record.transactions import Record


def follow_record(record: Record, live: LiveStore, tx_ids: Sequence[str]) -> set[str]:
    """The ids of those that SQL has ended; Redis has ended them as well now."""
    ended = record.finals(tx_ids) if tx_ids else {}
    live.follow_sql(list(ended.items()))
    return set(ended)


def follow_summaries(live: LiveStore, found: Iterable[Summary]) -> list[Summary]:
    """The same for rows that were read already; those that have not ended."""
    rows = list(found)
    live.follow_sql([(each.tx_id, each.status) for each in rows if each.is_final])
    return [each for each in rows if not each.is_final]
