"""Workers and API processes of the version before run beside those of this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from datp_tasks import Pipeline, Request
from datp_tasks.client.requests import Submitted
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.invariants import check_all
from datp_tasks.live.live_types import Bell
from datp_tasks.model.journal import BrokenJournal
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from tests.upgrade.old_worker import OldWorker, old_archiver_reads
from tests.upgrade.upgraded import Upgraded

#: How many transactions, of one shard: both versions write to the same lists and journal.
TOGETHER = 6


@pytest.fixture
def mixed(before: Upgraded) -> Iterator[Upgraded]:
    """With all that the version before left, and everything sound at the end."""
    before.load()

    @before.step("u/note")
    def note(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        before.books.write(ctx.tx_id, f"note {data['n']}")
        return {"n": data["n"] + 1}

    before.reopen()
    before.use(Pipeline("notes").step("u/note").step("u/note").build())
    yield before
    before.come_to_rest()
    assert check_all(before.connections.live) == []
    assert before.faults() == {}


def queued(kit: Upgraded, count: int = TOGETHER) -> list[str]:
    """Transactions of one shard whose bells nobody has heard."""
    kit.lose_bells()
    accepted = kit.client.submit_many([Request(pipeline="notes", input={"n": 1})] * count)
    kit.lose_bells(False)
    found = [each.tx_id for each in accepted if isinstance(each, Submitted)]
    assert (len(found), len({tx_id[1:3] for tx_id in found})) == (count, 1)
    return found


def test_both_versions_run_transactions_of_one_shard(mixed: Upgraded) -> None:
    ids = queued(mixed)
    old = OldWorker(mixed, ids[0])
    assert old.claim() == "OK"
    # This bell is for all of them: the first is taken.
    mixed.ring_together(ids)
    mixed.send("u/note", [(ids[0], 1)], group="master", priority="in")
    assert [mixed.status(tx).status for tx in ids[1:]] == [Status.SUCCESS] * (TOGETHER - 1)
    assert mixed.books.lines(ids[0]) == []

    mixed.books.write(ids[0], "note 1")
    assert old.checkpoint({"n": 2}) == "OK"
    mixed.run_job("archiver")
    mixed.books.write(ids[0], "note 2")
    assert old.finish({"n": 3}) == (True, "OK")
    mixed.run_job("archiver")
    assert ArchiveFeed(mixed.connections.live).journal_length() == 0
    for tx_id in ids:
        assert mixed.status(tx_id).output == {"n": 3}
        assert mixed.books.lines(tx_id) == ["note 1", "note 2"]


def test_what_this_version_has_claimed_is_refused_to_the_one_before(mixed: Upgraded) -> None:
    [tx_id] = queued(mixed, 1)
    mixed.crash_at("hop.after_claim")
    mixed.ring_together([tx_id])
    assert OldWorker(mixed, tx_id).claim() == "NOT_QUEUED"
    mixed.recover()
    assert mixed.status(tx_id).status is Status.SUCCESS


def test_a_worker_of_the_version_before_that_dies_is_taken_over_and_refused_later(
    mixed: Upgraded,
) -> None:
    [tx_id] = queued(mixed, 1)
    old = OldWorker(mixed, tx_id)
    assert old.claim() == "OK"
    mixed.books.write(tx_id, "note 1")
    assert old.checkpoint({"n": 2}) == "OK"
    mixed.recover()
    assert mixed.status(tx_id).output == {"n": 3}
    assert old.checkpoint({"n": 9}) == "STALE"
    assert old.finish({"n": 9}) == (False, "FINAL")
    assert mixed.status(tx_id).output == {"n": 3}
    assert mixed.books.lines(tx_id) == ["note 1", "note 2"]


def test_what_the_version_before_hands_over_or_puts_to_sleep_goes_on_here(mixed: Upgraded) -> None:
    handed, asleep = queued(mixed, 2)
    for tx_id, move in ((handed, "hand_over"), (asleep, "sleep")):
        old = OldWorker(mixed, tx_id)
        assert old.claim() == "OK"
        if move == "hand_over":
            mixed.books.write(tx_id, "note 1")
            assert old.hand_over({"n": 2}) == "OK"
        else:
            assert old.sleep(60) == "OK"
    mixed.advance(seconds=61)
    mixed.recover()
    for tx_id in (handed, asleep):
        assert mixed.status(tx_id).output == {"n": 3}
        assert mixed.books.lines(tx_id) == ["note 1", "note 2"]


@pytest.mark.parametrize("left", ["handed over", "dead in it"])
def test_what_the_version_before_left_at_a_point_of_no_return_passes_it_once(
    mixed: Upgraded, left: str
) -> None:
    """And is not stopped after it, neither by time nor by a client of that version."""
    final = Pipeline("final").step("u/note").step("u/note", final_from=True).step("u/rest")
    mixed.use(final.build())
    mixed.lose_bells()
    tx_id = mixed.submit("final", {"n": 1}, expires_in_s=300)
    mixed.lose_bells(False)
    old = OldWorker(mixed, tx_id)
    assert old.claim() == "OK"
    mixed.books.write(tx_id, "note 1")
    word = old.hand_over({"n": 2}) if left == "handed over" else old.checkpoint({"n": 2})
    assert word == "OK"
    mixed.recover()
    found = mixed.status(tx_id)
    assert (found.status, found.no_return_at is not None) == (Status.SLEEPING, True)
    mixed.advance(seconds=600)
    # Such a client tells Redis alone.
    bell = mixed.connections.live.stop(tx_id, StopRequest.cancel("not any more"), "old-client")
    assert isinstance(bell, Bell)
    mixed.recover()
    assert mixed.status(tx_id).status is Status.SUCCESS
    assert mixed.books.lines(tx_id) == ["note 1", "note 2"]


def test_what_an_api_process_of_the_version_before_has_queued_runs_here(mixed: Upgraded) -> None:
    mixed.crash_at("submit.after_accept")
    with pytest.raises(SimulatedCrash):
        mixed.submit("notes", {"n": 1}, external_id="by-old")
    found = mixed.connections.record.by_external_id("local", "by-old")
    assert found is not None
    assert OldWorker(mixed, found.tx_id).create() == "OK"
    mixed.ring_together([found.tx_id])
    assert mixed.status(found.tx_id).output == {"n": 3}
    # Nothing of this version makes or needs the key; it leaves by itself.
    assert mixed.submit("notes", {"n": 1}, external_id="by-old") == found.tx_id


def test_a_message_of_the_version_before_rings_here(mixed: Upgraded) -> None:
    [tx_id] = queued(mixed, 1)
    mixed.celery.tasks["datp.step.u/note"].apply_async(args=([(tx_id, 1)],))
    assert mixed.status(tx_id).status is Status.SUCCESS


def test_an_archiver_of_the_version_before_fails_at_new_entries_and_takes_none(
    mixed: Upgraded,
) -> None:
    """So archivers are upgraded first: docs/operations.md, Upgrades."""
    mixed.run_job("archiver")
    [alone] = queued(mixed, 1)
    OldWorker(mixed, alone).claim()
    by_old = [fields for _, fields in mixed.journal_entries() if fields[0] == "e"]
    assert by_old
    for fields in by_old:
        old_archiver_reads(fields)
    others = queued(mixed)
    mixed.ring_together(others[:1])
    mixed.ring_together(others[1:])
    by_new = [fields for _, fields in mixed.journal_entries() if fields[0] != "e"]
    assert {len(fields) > 2 for fields in by_new} == {True, False}
    for fields in by_new:
        with pytest.raises((BrokenJournal, ValueError)):
            old_archiver_reads(fields)
    mixed.recover()
    mixed.run_job("archiver")
    assert ArchiveFeed(mixed.connections.live).journal_length() == 0
