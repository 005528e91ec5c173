"""A success that came too late: it is refused, recorded and told.

The transaction had expired before its last step was done, so what was done is rolled back. The
outside may have acted on the success already; that is what the pipeline's `onLate` is for.
"""

from __future__ import annotations

import logging

from datp_tasks.engine.calls import StepCaller
from datp_tasks.engine.decide import Pipelines
from datp_tasks.engine.run import Run
from datp_tasks.model.state import State
from datp_tasks.model.status import Status
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.record_types import Summary
from datp_tasks.record.transactions import Record

log = logging.getLogger("datp.late")

ALERT = "late-finish"


class LateSuccesses:
    def __init__(
        self, record: Record, alerts: Alerts, pipelines: Pipelines, caller: StepCaller
    ) -> None:
        self._record = record
        self._alerts = alerts
        self._pipelines = pipelines
        self._caller = caller

    def is_late(self, run: Run, summary: Summary) -> bool:
        """Whether SQL refused this success because its time was over, and for nothing else."""
        if not _is_success(run.state) or summary.expires_at is None:
            return False
        if summary.is_final:
            return summary.status is Status.EXPIRED
        return summary.fence <= run.fence

    def tell(self, run: Run, summary: Summary) -> None:
        """At least once, and before the rollback begins: a crash makes SQL refuse it again."""
        assert run.state.ending is not None and summary.expires_at is not None
        self._record.note_late(run.tx_id)
        expiry = summary.expires_at.isoformat()
        about = run.about("tx.late")
        log.error("%s was done after its expiry at %s; refused", run.tx_id, expiry, extra=about)
        root = run.state.stack[0]
        hook = self._pipelines.version(root.pipeline, root.version).on_late
        trouble = ""
        if hook is not None:
            data = {"txId": run.tx_id, "output": run.state.ending.output, "expiresAt": expiry}
            trouble = self._caller.tell_late(run, hook, data)
        said = f"was done only after its expiry at {expiry} and is rolled back{trouble}"
        self._alerts.raise_alert(ALERT, run.tx_id, said)


def _is_success(state: State) -> bool:
    return state.ending is not None and state.ending.status == Status.SUCCESS
