"""forget.lua: what was erased leaves Redis, once the archiver has nothing to write of it."""

from __future__ import annotations

from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.erasing import forget_many
from tests.support.live_states import Stage


def read_out(stage: Stage) -> None:
    """SQL has the journal."""
    feed = ArchiveFeed(stage.live)
    feed.drop_journal(
        feed.read_journal(entries_max=1_000, bytes_max=10_000_000, entry_bytes_max=1_000)
    )


def test_what_has_ended_and_is_archived_is_forgotten(loose_stage: Stage) -> None:
    tx_id = loose_stage.finished().tx_id
    version = loose_stage.live.fields_many([tx_id])[0]["version"]
    loose_stage.live.confirm_archived_many([(tx_id, version, "")])
    read_out(loose_stage)
    assert forget_many(loose_stage.live, [tx_id]) == set()
    assert loose_stage.redis.exists(loose_stage.live.keys.deltas(tx_id)) == 0
    assert loose_stage.live.fields_many([tx_id]) == [{}]
    assert forget_many(loose_stage.live, [tx_id]) == set()


def test_what_is_still_to_be_archived_stays(loose_stage: Stage) -> None:
    tx_id = loose_stage.finished().tx_id
    read_out(loose_stage)
    with loose_stage.nothing_changes():
        assert forget_many(loose_stage.live, [tx_id]) == {tx_id}


def test_what_goes_on_stays(loose_stage: Stage) -> None:
    tx_id = loose_stage.claimed().tx_id
    read_out(loose_stage)
    with loose_stage.nothing_changes():
        assert forget_many(loose_stage.live, [tx_id]) == {tx_id}


def test_what_is_on_its_way_to_sql_stays(loose_stage: Stage) -> None:
    tx_id = loose_stage.finished().tx_id
    version = loose_stage.live.fields_many([tx_id])[0]["version"]
    loose_stage.live.confirm_archived_many([(tx_id, version, "")])
    with loose_stage.nothing_changes():
        assert forget_many(loose_stage.live, [tx_id]) == {tx_id}
