"""What Redis still has of transactions whose payloads are erased."""

from __future__ import annotations

from collections.abc import Sequence

from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.scripts import call, script
from datp_tasks.live.store import LiveStore


def forget_many(live: LiveStore, tx_ids: Sequence[str]) -> set[str]:
    """Take out what has ended and is archived; those of which SQL lacks something stay."""
    # A change that is on its way to SQL is in the journal of its shard, and leaves it last.
    busy = set(ArchiveFeed(live).waiting_entries(tx_ids))
    ready = [tx for tx in tx_ids if tx not in busy]
    keys = live.keys
    calls = [
        call(
            script("forget"),
            (keys.state(tx), keys.deltas(tx), keys.of_tx(tx, "toArchiveZ")),
            (tx,),
        )
        for tx in ready
    ]
    answers = live.run(calls) if calls else []
    return busy | {tx for tx, answer in zip(ready, answers, strict=True) if answer[0] != "OK"}
