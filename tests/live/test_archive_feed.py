"""What the archiver reads of the journal at a time."""

from __future__ import annotations

from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.scripts import CALL_BYTES_MAX
from tests.support.live_states import NODE, Stage


def test_changes_are_counted_and_not_the_vectors_that_they_came_in(stage: Stage) -> None:
    for _ in range(40):
        bells = stage.live.create_many([stage.new(shard="07") for _ in range(5)])
        pairs = [(bell.tx_id, bell.sequence) for bell in bells if bell is not None]
        stage.live.claim_many(pairs, NODE)
    feed = ArchiveFeed(stage.live)

    def read(entries_max: int) -> tuple[int, int, frozenset[str]]:
        drained = feed.read_journal(
            entries_max=entries_max,
            bytes_max=3 * CALL_BYTES_MAX,
            entry_bytes_max=0,
            shards=["07"],
        )
        return drained.count, drained.stream_entries, drained.behind

    assert read(20) == (20, 4, frozenset({"07"}))
    assert read(1_000) == (200, 40, frozenset())
