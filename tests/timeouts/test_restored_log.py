"""After a dump was restored into another server, whose transaction ids are lower."""

from __future__ import annotations

from datp_tasks.record.timeouts import Window
from tests.timeouts.change_log import ChangeLog


def restore_elsewhere(log: ChangeLog) -> None:
    """What `pg_restore` brings: ids of transactions that this server has not reached."""
    with log.engine.begin() as sql:
        sql.exec_driver_sql("UPDATE segment SET xact = '999999999'")
        sql.exec_driver_sql("UPDATE tx_state_change SET xact = '999999999'")


def test_new_rows_are_read_and_so_are_those_of_the_dump(log: ChangeLog) -> None:
    log.add("before", "queued")
    log.add("ended", "queued", "success")
    log.read()
    log.add("unread", "queued")
    restore_elsewhere(log)
    log.add("after", "queued")
    assert log.timeouts.peek().is_new
    assert log.read() == Window(rows=4)
    log.read()
    assert log.watched() == ["after", "before", "unread"]
    assert not log.timeouts.peek().is_new
    assert log.read() == Window()


def test_a_long_log_is_renumbered_in_parts(log: ChangeLog) -> None:
    for number in range(5):
        log.add(f"tx{number}", "queued")
    log.read()
    restore_elsewhere(log)
    assert [log.read(rows_max=2).rows for _ in range(3)] == [2, 2, 1]
    assert log.read() == Window(rows=5)
    assert len(log.watched()) == 5
