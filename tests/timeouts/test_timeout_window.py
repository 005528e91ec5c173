"""The incremental pass: what is new in the log, and nothing else, keeps `tx_timeout` right."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from datp_tasks.model.status import FINAL, Status
from datp_tasks.record.timeouts import Window
from datp_tasks.testing import Kit
from tests.timeouts.change_log import ChangeLog

IN_PROCESS = sorted(set(Status) - FINAL)


@pytest.mark.parametrize("status", IN_PROCESS)
def test_a_transaction_in_process_is_watched(log: ChangeLog, status: str) -> None:
    log.add("a", status)
    assert log.read() == Window(rows=1, added=1)
    assert log.watched() == ["a"]


@pytest.mark.parametrize("status", sorted(FINAL))
def test_every_final_status_ends_the_watch(log: ChangeLog, status: str) -> None:
    log.add("a", "queued")
    log.read()
    log.add("a", status)
    assert log.read() == Window(rows=1, removed=1)
    assert log.watched() == []


def test_what_begins_and_ends_in_one_window_is_never_watched(log: ChangeLog) -> None:
    log.add("a", "queued", "in-doubt", "success")
    assert log.read() == Window(rows=3)
    assert log.watched() == []


def test_a_second_state_in_a_later_window_changes_nothing(log: ChangeLog) -> None:
    log.add("a", "queued")
    log.read()
    log.add("a", "in-doubt")
    assert log.read() == Window(rows=1)
    assert log.watched() == ["a"]


def test_a_transaction_without_an_expiry_is_not_even_read(log: ChangeLog) -> None:
    log.add("a", "queued", "success", expires_in_s=None)
    assert log.read() == Window()
    assert log.watched() == []


def test_a_row_is_read_once(log: ChangeLog) -> None:
    log.add("a", "queued")
    assert log.read().rows == 1
    assert log.read() == Window()


def test_an_empty_log_is_no_trouble_however_often_it_is_read(log: ChangeLog) -> None:
    assert [log.read() for _ in range(3)] == [Window()] * 3
    log.add("a", "queued")
    assert log.read().added == 1
    assert len(log.select("SELECT 1 FROM segment")) == 1


def test_a_window_is_bounded_and_the_rest_follows(log: ChangeLog) -> None:
    for number in range(7):
        log.add(f"tx{number}", "queued")
    assert [log.read(rows_max=3).rows for _ in range(4)] == [3, 3, 1, 0]
    assert len(log.watched()) == 7


def test_a_window_may_end_in_the_middle_of_a_commit(log: ChangeLog) -> None:
    with log.open_writer() as sql:
        for number in range(5):
            log.add(f"tx{number}", "queued", sql=sql)
    assert [log.read(rows_max=2).rows for _ in range(4)] == [2, 2, 1, 0]
    assert len(log.watched()) == 5


def test_only_what_is_due_is_taken_and_by_its_time(datp: Kit, log: ChangeLog) -> None:
    log.add("late", "queued", expires_in_s=20)
    log.add("early", "queued", expires_in_s=10)
    assert log.take_due() == set()
    datp.clock.advance(seconds=10)
    assert log.take_due() == {"early"}
    datp.clock.advance(seconds=10)
    assert log.take_due() == {"late"}


def test_what_was_taken_comes_again_only_after_a_while(datp: Kit, log: ChangeLog) -> None:
    log.add("a", "queued", expires_in_s=1)
    datp.clock.advance(seconds=1)
    assert log.take_due() == {"a"}
    datp.clock.advance(seconds=29)
    assert log.take_due() == set()
    datp.clock.advance(seconds=1)
    assert log.take_due() == {"a"}


def test_the_most_overdue_are_taken_first(datp: Kit, log: ChangeLog) -> None:
    for number in (3, 1, 2):
        log.add(f"tx{number}", "queued", expires_in_s=number)
    log.read()
    datp.clock.advance(seconds=10)
    taken = [log.run_pass(batch_max=1)[1] for _ in range(4)]
    assert [[due.tx_id for due in each] for each in taken] == [["tx1"], ["tx2"], ["tx3"], []]


def test_a_pass_that_breaks_off_changes_nothing(log: ChangeLog) -> None:
    log.add("a", "queued")
    with pytest.raises(Exception, match="LIMIT must not be negative"):
        log.run_pass(batch_max=-1)
    assert log.watched() == []
    assert log.read() == Window(rows=1, added=1)


def test_while_one_reads_another_does_not_wait_and_takes_what_is_due(
    datp: Kit, log: ChangeLog
) -> None:
    log.add("a", "queued", expires_in_s=1)
    log.read()
    log.add("b", "queued")
    datp.clock.advance(seconds=1)
    with log.engine.begin() as reader:
        reader.exec_driver_sql("SELECT 1 FROM segment FOR UPDATE")
        window, due = log.run_pass()
    assert (window, [each.tx_id for each in due]) == (Window(), ["a"])
    assert log.read() == Window(rows=1, added=1)


def test_two_that_have_nothing_to_follow_begin_only_one_segment(log: ChangeLog) -> None:
    log.add("a", "queued")
    barrier = threading.Barrier(4)
    found: list[Window] = []

    def begin() -> None:
        barrier.wait(10)
        found.append(log.read())

    _together(begin, 4)
    assert sorted(each.rows for each in found) == [0, 0, 0, 1]
    assert log.watched() == ["a"]


def test_many_passes_at_once_take_each_due_transaction_once(datp: Kit, log: ChangeLog) -> None:
    with log.open_writer() as sql:
        for number in range(300):
            log.add(f"tx{number:03}", "queued", expires_in_s=1, sql=sql)
    datp.clock.advance(seconds=1)
    taken: list[str] = []

    def work() -> None:
        empty = 0
        while empty < 3:
            window, due = log.run_pass(rows_max=20, batch_max=7)
            taken.extend(each.tx_id for each in due)
            empty = 0 if due or window.rows else empty + 1

    _together(work, 4)
    assert sorted(taken) == [f"tx{number:03}" for number in range(300)]


def test_forgetting_and_noting_do_not_wait_for_a_locked_row(log: ChangeLog) -> None:
    log.add("a", "queued")
    log.add("b", "queued")
    log.read()
    with log.engine.begin() as other:
        other.exec_driver_sql("SELECT 1 FROM tx_timeout WHERE tx_id = 'a' FOR UPDATE")
        log.timeouts.note_asked([("a", "1:1"), ("b", "2:2")])
        log.timeouts.forget(["a"])
    rows = log.select("SELECT tx_id, asked FROM tx_timeout ORDER BY tx_id")
    assert [tuple(row) for row in rows] == [("a", None), ("b", "2:2")]
    log.timeouts.forget(["a", "b"])
    assert log.watched() == []


def test_what_a_worker_had_done_when_it_was_first_asked_stays(datp: Kit, log: ChangeLog) -> None:
    log.add("a", "queued", expires_in_s=1)
    log.read()
    log.timeouts.note_asked([("a", "7:1")])
    datp.clock.advance(seconds=31)
    log.timeouts.note_asked([("a", "7:2")])
    [due] = log.run_pass()[1]
    assert (due.asked, due.asked_ago_s) == ("7:1", 31.0)


def test_a_look_writes_nothing_and_tells_what_there_is(datp: Kit, log: ChangeLog) -> None:
    def seen() -> tuple[Any, ...]:
        before = log.select("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
        peek = log.timeouts.peek()
        assert log.select("SELECT pg_snapshot_xmax(pg_current_snapshot())::text") == before
        return peek.is_new, peek.is_due, peek.lag_s

    assert seen() == (False, False, 0.0)
    log.add("a", "queued", expires_in_s=10)
    datp.clock.advance(seconds=3)
    assert seen() == (True, False, 3.0)
    log.read()
    assert seen() == (False, False, 0.0)
    datp.clock.advance(seconds=7)
    assert seen() == (False, True, 0.0)


def _together(work: Any, count: int) -> None:
    """Run it in threads; what one of them raises is raised here."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
