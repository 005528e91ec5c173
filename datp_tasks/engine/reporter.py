"""Progress reports: numbered and recorded in SQL, then shown by Redis to those who wait.

SQL is asked first, so that a client that Redis wakes finds the new number there. If SQL is
unavailable the step goes on: the report is shown, but it is no event, and no number is left out. A
worker that has lost its transaction is refused by one or the other.
"""

from __future__ import annotations

import logging

from datp_tasks.engine.run import Run
from datp_tasks.errors import StaleFence
from datp_tasks.live.store import LiveStore
from datp_tasks.record.sql_errors import DBAPIError
from datp_tasks.record.transactions import Record

log = logging.getLogger("datp.step")


class Reporter:
    def __init__(self, live: LiveStore, record: Record) -> None:
        self._live = live
        self._record = record

    def report(self, run: Run, text: str) -> None:
        """One report, at once; StaleFence if the transaction is another worker's by now."""
        if run.held_reports is not None:
            # The step holds the row of the summary until its commit: SQL would wait for the step.
            run.held_reports.append(text)
        elif not self._record_report(run, text):
            raise StaleFence
        if self._live.report_progress(run.tx_id, run.fence, text):
            raise StaleFence
        run.progress = text

    def report_held(self, run: Run) -> None:
        """What a transactional step has reported, now that its row is free."""
        held, run.held_reports = run.held_reports or [], None
        for text in held:
            if not self._record_report(run, text):
                return
        if held:
            # Once more, for those who wait for the number.
            self._live.report_progress(run.tx_id, run.fence, held[-1])

    def _record_report(self, run: Run, text: str) -> bool:
        # Redis is asked before, too: after a loss there, SQL does not know of the newer claim.
        (found,) = self._live.named_many([run.tx_id], ("status", "fence"))
        if found.get("status") != "running" or found.get("fence") != str(run.fence):
            return False
        try:
            return self._record.report_progress(run.tx_id, run.fence, text) is not None
        except DBAPIError as error:
            log.warning("%s: a progress report is no event: %s", run.tx_id, error.orig)
            return True
