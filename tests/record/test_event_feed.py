"""The feed of events: every one once and in the order of commits, whatever happens meanwhile."""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Fail, Pipeline
from datp_tasks.client.requests import new_tx_id
from datp_tasks.errors import CursorInvalid, CursorTooOld
from datp_tasks.model.status import Status
from datp_tasks.record.event_feed import (
    EventFeed,
    Query,
    TransactionEvent,
)
from datp_tasks.record.feed_places import (
    BEGINNING,
    FeedCursor,
    FeedNames,
    FeedPlace,
    OldPlaces,
)
from datp_tasks.record.record_types import Acceptance, Final, Mark
from datp_tasks.testing import Kit

Data = dict[str, Any]


@pytest.fixture
def feed(datp: Kit) -> EventFeed:
    return EventFeed(datp.connections.engine)


def acceptance(owner: str = "acme") -> Acceptance:
    return Acceptance(
        tx_id=new_tx_id("07"),
        owner=owner,
        external_id=None,
        fingerprint="",
        pipeline="p",
        version="v",
        input_json="{}",
        metadata_json=None,
    )


def final(tx_id: str, fence: int = 1) -> Final:
    status = Status.SUCCESS
    return Final(tx_id=tx_id, fence=fence, status=status, output_json='{"a": 1}', note=None)


def read_all(feed: EventFeed, owner: str | None, rows_max: int = 100) -> list[TransactionEvent]:
    found, after = [], BEGINNING
    while True:
        page = feed.page(owner, after, rows_max)
        found += page.events
        after = page.next.place
        if not page.is_full:
            return found


# What an event says.


def test_the_life_of_a_transaction_is_told_in_order(datp: Kit, feed: EventFeed) -> None:
    @datp.step("t/report")
    def report(ctx: Any, data: Data) -> Data:
        ctx.progress({"part": 1})
        return {"paid": True}

    datp.use(Pipeline("p").step("t/report").build())
    tx_id = datp.submit("p", {"a": 1}, owner="acme", external_id="e1", metadata={"m": 1})
    events = read_all(feed, "acme")
    assert [each.type for each in events] == [
        "transaction.accepted",
        "transaction.progress",
        "transaction.completed",
    ]
    accepted, progress, completed = (each.data for each in events)
    assert {each.tx_id for each in events} == {tx_id}
    assert (accepted["status"], accepted["output"], accepted["sequence"]) == ("queued", None, None)
    assert (progress["progress"], progress["sequence"]) == ({"part": 1}, 1)
    assert (completed["status"], completed["output"]) == ("success", {"paid": True})
    assert (completed["sequence"], completed["externalId"]) == (2, "e1")
    assert completed["metadata"] == {"m": 1}
    assert len({each.id for each in events}) == 3


def test_failures_and_doubts_are_told(datp: Kit, feed: EventFeed) -> None:
    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no money")

    datp.use(Pipeline("p").step("t/fail").build())
    datp.submit("p", {}, owner="acme")
    [_, failed] = read_all(feed, "acme")
    assert (failed.data["status"], failed.data["note"]) == ("failed", "no money")
    record = datp.connections.record
    wanted = acceptance("zeta")
    record.accept_many([wanted])
    record.mark_many([Mark(wanted.tx_id, 1, "who knows")], Status.IN_DOUBT)
    record.mark_many([Mark(wanted.tx_id, 2, "resolved")], Status.QUEUED)
    told = [(each.type, each.data["status"], each.data["note"]) for each in read_all(feed, "zeta")]
    assert told == [
        ("transaction.accepted", "queued", None),
        ("transaction.in-doubt", "in-doubt", "who knows"),
        ("transaction.resumed", "queued", "resolved"),
    ]


def test_an_owner_sees_its_own_and_all_can_be_seen(datp: Kit, feed: EventFeed) -> None:
    record = datp.connections.record
    mine, other = acceptance("acme"), acceptance("zeta")
    record.accept_many([mine])
    record.accept_many([other])
    assert [each.tx_id for each in read_all(feed, "acme")] == [mine.tx_id]
    assert [(each.owner, each.tx_id) for each in read_all(feed, None)] == [
        ("acme", mine.tx_id),
        ("zeta", other.tx_id),
    ]
    pages = feed.pages([("acme", BEGINNING), ("zeta", BEGINNING), ("none", BEGINNING)], 10)
    assert {owner: len(page.events) for owner, page in pages.items()} == {
        "acme": 1,
        "zeta": 1,
        "none": 0,
    }


def test_rows_of_a_process_of_the_release_before_are_in_the_feed(
    datp: Kit, feed: EventFeed
) -> None:
    """Its statements know neither owner nor place."""
    old = {"tx_id": (wanted := acceptance()).tx_id, "owner": wanted.owner}
    with datp.connections.engine.begin() as sql:
        sql.execute(
            text("""
            WITH accepted AS (
                INSERT INTO tx_summary (tx_id, owner, fingerprint, pipeline, version, status, input,
                                        created_at)
                VALUES (:tx_id, :owner, '', 'p', 'v', 'queued', '{}', now()) RETURNING tx_id)
            INSERT INTO tx_state_change (tx_id, status, created_at)
            SELECT tx_id, 'queued', now() FROM accepted"""),
            old,
        )
        sql.execute(
            text(
                "INSERT INTO tx_event (tx_id, sequence, kind, payload, created_at) "
                "VALUES (:tx_id, 1, 'progress', '{}', now())"
            ),
            old,
        )
    assert [each.type for each in read_all(feed, "acme")] == [
        "transaction.accepted",
        "transaction.progress",
    ]


# Order and gaps.


def test_what_commits_late_is_neither_skipped_nor_told_out_of_order(
    datp: Kit, feed: EventFeed
) -> None:
    datp.use(Pipeline("p").step("util/fixed-reply", params={"output": {}}).build())
    record = datp.connections.record
    first = feed.page("acme", BEGINNING, 10)
    with datp.connections.engine.connect() as slow:
        late = datp.client.submit_in(slow, "p", {}, owner="acme").tx_id
        quick = acceptance()
        record.accept_many([quick])
        second = feed.page("acme", first.next.place, 10)
        assert second.events == []
        slow.commit()
    third = feed.page("acme", second.next.place, 10)
    assert [each.tx_id for each in third.events] == [late, quick.tx_id]
    assert feed.page("acme", third.next.place, 10).events == []
    datp.client.place_committed()


@pytest.mark.parametrize("rows_max", [1, 2, 3, 7])
@pytest.mark.parametrize("owner", ["acme", None])
def test_pages_of_every_size_give_the_same(
    datp: Kit, feed: EventFeed, rows_max: int, owner: str | None
) -> None:
    record = datp.connections.record
    wanted = [acceptance() for _ in range(5)]
    # Many rows of one writer: a page may end in the middle of them.
    record.accept_many(wanted)
    for each in wanted:
        record.report_progress(each.tx_id, 1, "{}")
    record.finish_many([final(each.tx_id) for each in wanted])
    whole = read_all(feed, owner, 1_000)
    assert len(whole) == 15
    assert read_all(feed, owner, rows_max) == whole
    # From each cursor on, as a client that comes back does it.
    for number, event in enumerate(whole):
        place = feed.names.parse(event.cursor, event.at).place
        assert feed.page(owner, place, 1_000).events == whole[number + 1 :]


def test_ten_writers_and_readers_that_come_back_miss_nothing_and_see_nothing_twice(
    datp: Kit, feed: EventFeed
) -> None:
    assert Crowd(datp, feed, transactions=1_000, writers=10).run(readers=4) == []


@dataclass
class Crowd:
    """Writers that commit at random, some of them late, and readers that have only a cursor."""

    kit: Kit
    feed: EventFeed
    transactions: int
    writers: int
    over: threading.Event = field(default_factory=threading.Event)
    wrong: list[str] = field(default_factory=list)

    def run(self, readers: int) -> list[str]:
        """What readers saw that was wrong."""
        writing = [threading.Thread(target=self.write, args=(n,)) for n in range(self.writers)]
        reading = [threading.Thread(target=self.read, args=(n,)) for n in range(readers)]
        for each in (*writing, *reading):
            each.start()
        for each in writing:
            each.join()
        self.over.set()
        for each in reading:
            each.join()
        return self.wrong

    def write(self, number: int) -> None:
        rng, record = random.Random(number), self.kit.connections.record
        left = self.transactions // self.writers
        while left > 0:
            wanted = [acceptance() for _ in range(min(left, rng.randint(1, 10)))]
            left -= len(wanted)
            record.accept_many(wanted)
            for each in wanted[::3]:
                record.report_progress(each.tx_id, 1, "{}")
            if rng.random() < 0.2:
                self.doubt(wanted[0].tx_id, rng.random() * 0.02)
            record.finish_many([final(each.tx_id, fence=3) for each in wanted])

    def doubt(self, tx_id: str, pause_s: float) -> None:
        with self.kit.connections.engine.begin() as slow:
            slow.exec_driver_sql("SELECT pg_current_xact_id()")
            time.sleep(pause_s)
            mark = [Mark(tx_id, 2, "?")]
            self.kit.connections.record.mark_many(mark, Status.IN_DOUBT, connection=slow)

    def read(self, number: int) -> None:
        rng = random.Random(100 + number)
        owner = "acme" if number % 2 else None
        seen: list[str] = []
        names, now = self.feed.names, datetime.now(UTC)
        cursor, is_last = names.text(FeedCursor(BEGINNING, now)), False
        while True:
            # A reader that comes back has nothing but its cursor.
            page = self.feed.page(owner, names.parse(cursor, now).place, rng.randint(1, 50))
            kept, cursor = page.events, names.text(page.next)
            if page.events and rng.random() < 0.2:
                kept = page.events[: rng.randint(1, len(page.events))]
                cursor = kept[-1].cursor
            seen += [each.id for each in kept]
            if is_last and not page.is_full and len(kept) == len(page.events):
                break
            is_last = self.over.is_set()
        whole = [each.id for each in read_all(self.feed, owner, 1_000)]
        if seen != whole:
            self.wrong.append(f"reader {number}: {len(seen)} seen, {len(set(seen))}, {len(whole)}")


# Cursors.


NOW = datetime(2027, 1, 31, tzinfo=UTC)
NAMES = FeedNames(bytes(32), OldPlaces(0, 0, 0, NOW))


@pytest.mark.parametrize("cursor", ["", "x", "MS4x", "MS4xLjAuMS4", "é", "1.1.0.1.1", "A" * 300])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(CursorInvalid):
        NAMES.parse(cursor, NOW)


def test_a_cursor_of_a_year_that_does_not_exist_is_refused() -> None:
    text = base64.urlsafe_b64encode(b"1.5.0.7.999999999999999").decode()
    with pytest.raises(CursorInvalid):
        NAMES.parse(text.rstrip("="), NOW)


def test_a_cursor_that_was_made_with_another_key_is_of_another_database() -> None:
    """A backup from before the key was made, or of another installation, was restored."""
    text = FeedNames(b"other" * 7, OldPlaces(0, 0, 0, NOW)).text(FeedCursor(BEGINNING, NOW))
    with pytest.raises(CursorTooOld, match="Begin anew"):
        NAMES.parse(text, NOW)


def test_a_cursor_that_is_older_than_what_is_kept_is_refused() -> None:
    now = NOW
    cursor = FeedCursor(FeedPlace(5, 0, 7), now - timedelta(days=29))
    assert NAMES.parse(NAMES.text(cursor), now) == cursor
    cursor.check_kept(30, now)
    cursor.check_kept(0, now + timedelta(days=9_999))
    with pytest.raises(CursorTooOld, match="30 days"):
        cursor.check_kept(30, now + timedelta(days=1))


def test_a_reader_of_a_quiet_feed_keeps_a_fresh_cursor(datp: Kit, feed: EventFeed) -> None:
    before = feed.page("acme", BEGINNING, 10).next
    datp.connections.record.accept_many([acceptance("zeta")])
    after = feed.page("acme", before.place, 10).next
    assert after.place > before.place
    assert after.at >= before.at


def test_a_cursor_of_another_server_is_refused(datp: Kit, feed: EventFeed) -> None:
    for owner in ("acme", None):
        with pytest.raises(CursorTooOld, match="another database server"):
            feed.page(owner, FeedPlace(2**60, 0, 0), 10)


def test_events_of_a_restored_dump_are_told_and_not_before_their_time(
    datp: Kit, feed: EventFeed
) -> None:
    wanted = acceptance()
    datp.connections.record.accept_many([wanted])
    datp.connections.record.report_progress(wanted.tx_id, 1, "{}")
    assert feed.renumber(10) == 0
    with datp.connections.engine.begin() as sql:
        for table in ("tx_state_change", "tx_event"):
            sql.execute(text(f"UPDATE {table} SET xact = '4611686018427387904'"))
    assert read_all(feed, "acme") == []
    assert feed.renumber(10) == 2
    assert [each.tx_id for each in read_all(feed, "acme")] == [wanted.tx_id] * 2


# Cost.


@pytest.fixture
def history(datp: Kit) -> Kit:
    """Many events of others, some of acme."""
    with datp.connections.engine.begin() as sql:
        sql.execute(
            text("""
            WITH made AS (
                INSERT INTO tx_summary (tx_id, owner, fingerprint, pipeline, version, status, input,
                                        created_at)
                SELECT 't00-' || n, CASE WHEN n % 1000 = 0 THEN 'acme' ELSE 'o' || n % 50 END, '',
                       'p', 'v', 'queued', '{}', now()
                FROM generate_series(1, 20000) n RETURNING tx_id, owner)
            INSERT INTO tx_state_change (tx_id, status, created_at, owner)
            SELECT tx_id, 'queued', now(), owner FROM made""")
        )
        sql.execute(
            text("""
            INSERT INTO tx_event (tx_id, sequence, kind, payload, created_at)
            SELECT tx_id, n, 'progress', '{}', now() FROM tx_summary, generate_series(1, 2) n
            WHERE tx_id LIKE 't00-%'""")
        )
    with datp.connections.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as sql:
        sql.execute(text("ANALYZE tx_state_change, tx_event, tx_summary"))
    return datp


@pytest.mark.parametrize("owner", ["acme", None])
def test_a_page_reads_as_many_rows_as_it_has_however_long_the_history_is(
    history: Kit, owner: str | None
) -> None:
    values: dict[str, Any] = {"limit": 10, "xact": "0", "change": 0, "report": 0}
    sql = Query.page_of_all
    if owner is not None:
        sql = Query.pages
        values |= {"owner": [owner], "xact": ["0"], "change": [0], "report": [0]}
    with history.connections.engine.connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", values)
        plan = rows.scalar_one()
    plan = plan if isinstance(plan, list) else json.loads(plan)
    scans = list(_scans(plan[0]["Plan"]))
    assert {scan["Node Type"] for scan in scans} <= {"Index Scan", "Index Only Scan"}, scans
    read = max(scan["Actual Rows"] * scan["Actual Loops"] for scan in scans)
    assert read <= 10
    assert sum(scan.get("Rows Removed by Filter", 0) for scan in scans) == 0


def _scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Relation Name" in plan:
        yield plan
    for each in plan.get("Plans", ()):
        yield from _scans(each)
