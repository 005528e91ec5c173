"""Ids become visible out of order; the pass must not lose one. The seed's watermark does."""

from __future__ import annotations

from datp_tasks.record.timeouts import Window
from tests.timeouts.change_log import ChangeLog

NAIVE_READ = """
SELECT tx_id, id FROM tx_state_change WHERE id > %(watermark)s AND id <= %(until)s ORDER BY id
"""


class NaiveReader:
    """The seed's steps 1, 4, 6 and 9: everything between the last highest id and the highest."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._watermark = 0

    def read(self) -> list[str]:
        until = self._log.select("SELECT coalesce(max(id), 0) FROM tx_state_change")[0][0]
        with self._log.engine.connect() as sql:
            limits = {"watermark": self._watermark, "until": until}
            found = [row.tx_id for row in sql.exec_driver_sql(NAIVE_READ, limits)]
        self._watermark = until
        return found


def test_a_row_that_commits_after_a_higher_id_was_read_is_found(log: ChangeLog) -> None:
    with log.open_writer() as sql:
        log.add("slow", "queued", sql=sql)
        log.add("quick", "queued")
        assert log.read() == Window()
        peek = log.timeouts.peek()
        assert (peek.is_new, peek.is_due) == (False, False)
    assert log.read() == Window(rows=2, added=2)
    assert log.watched() == ["quick", "slow"]


def test_the_naive_watermark_loses_that_row(log: ChangeLog) -> None:
    naive = NaiveReader(log)
    with log.open_writer() as sql:
        log.add("slow", "queued", sql=sql)
        log.add("quick", "queued")
        assert naive.read() == ["quick"]
    assert naive.read() == []
    assert log.read().added == 2


def test_what_was_committed_before_the_open_writer_began_is_read_at_once(log: ChangeLog) -> None:
    log.add("before", "queued")
    with log.open_writer() as sql:
        log.add("slow", "queued", sql=sql)
        log.add("after", "queued")
        assert log.read() == Window(rows=1, added=1)
        assert log.watched() == ["before"]
    assert log.read() == Window(rows=2, added=2)


def test_a_writer_that_took_its_place_early_and_its_id_late_is_found(log: ChangeLog) -> None:
    """A lower transaction id with a higher row id: neither order alone is enough."""
    with log.open_writer() as early:
        early.exec_driver_sql("SELECT pg_current_xact_id()")
        log.add("late place, early id", "queued")
        log.add("early place, late id", "queued", sql=early)
    assert [log.read(rows_max=1).rows for _ in range(3)] == [1, 1, 0]
    assert len(log.watched()) == 2


def test_a_writer_that_took_its_id_early_and_its_place_late_is_found(log: ChangeLog) -> None:
    """Its row id is below one that was read, and nobody before it is open any more."""
    early, late = log.engine.connect(), log.engine.connect()
    with early, late:
        early.exec_driver_sql("SELECT pg_current_xact_id()")
        log.add("early id", "queued", sql=late)
        log.add("early place", "queued", sql=early)
        early.commit()
        assert log.read() == Window(rows=1, added=1)
        assert log.watched() == ["early place"]
        late.commit()
    assert log.read() == Window(rows=1, added=1)
    assert log.watched() == ["early id", "early place"]


def test_a_writer_that_gives_up_holds_no_other_up(log: ChangeLog) -> None:
    with log.engine.connect() as sql:
        log.add("undone", "queued", sql=sql)
        log.add("quick", "queued")
        assert log.read() == Window()
        sql.rollback()
    assert log.read() == Window(rows=1, added=1)
    assert log.watched() == ["quick"]


def test_writers_that_overlap_in_every_order_are_all_found(log: ChangeLog) -> None:
    """Each writer stays open across the commit of the next and a pass in between."""
    open_writers = []
    for number in range(12):
        connection = log.engine.connect()
        log.add(f"tx{number:02}", "queued", sql=connection)
        open_writers.append(connection)
        if number % 3 == 2:
            # The one in the middle first, the oldest last.
            for index in (1, 2, 0):
                open_writers[index].commit()
                open_writers[index].close()
                log.read(rows_max=1)
            open_writers = []
    while log.read(rows_max=1).rows:
        pass
    assert log.watched() == [f"tx{number:02}" for number in range(12)]


def test_the_end_of_a_transaction_is_not_missed_either(log: ChangeLog) -> None:
    log.add("a", "queued")
    log.read()
    with log.open_writer() as sql:
        log.add("a", "success", sql=sql)
        log.add("b", "queued")
        log.read()
    log.read()
    assert log.watched() == ["b"]
