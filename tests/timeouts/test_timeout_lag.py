"""An alert is open while the handler is too far behind, and only then."""

from __future__ import annotations

from datp_tasks.record import timeouts
from datp_tasks.testing import Kit
from tests.timeouts.change_log import ChangeLog
from tests.timeouts.history import alerts


def test_a_writer_that_does_not_commit_raises_an_alert_that_clears_itself(
    datp: Kit, log: ChangeLog
) -> None:
    with log.open_writer() as sql:
        sql.exec_driver_sql("SELECT pg_current_xact_id()")
        log.add("behind", "queued", "success")
        datp.clock.advance(seconds=timeouts.LAG_ALERT_S)
        datp.run_job("timeout_handler")
        assert alerts(datp, "timeouts-behind") == []
        datp.clock.advance(seconds=1)
        for _ in range(3):
            datp.run_job("timeout_handler")
        [said] = alerts(datp, "timeouts-behind")
        assert "61 s behind" in said
    datp.run_job("timeout_handler")
    assert alerts(datp, "timeouts-behind") == []


def test_an_idle_run_writes_nothing(datp: Kit, log: ChangeLog) -> None:
    def next_xact() -> object:
        return log.select("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")

    log.add("done", "queued", "success")
    datp.run_job("timeout_handler")
    before = next_xact()
    datp.run_job("timeout_handler")
    assert next_xact() == before
