"""What beat schedules, how often, and where it goes."""

from __future__ import annotations

from typing import Any

from datp_tasks.bells.job_messages import KEPT_S, PRIORITY
from datp_tasks.settings import Settings

TASK_PREFIX = "datp.maintenance."

#: Job (a module beside this one) -> its period in seconds, or what holds it in the settings.
JOBS: dict[str, str | float] = {
    "sleeper": "sleeper_period_s",
    "timeout_handler": "timeout_handler_period_s",
    "reaper": "reaper_period_s",
    "reconciler": "reconciler_period_s",
    "archiver": "archiver_period_s",
    # The finest slot of the metrics.
    "meter": 5.0,
    # Dropping is not urgent.
    "retention": 60.0,
    # Only repairs copies in Redis.
    "pipeline_cache": 10.0,
    "claim_queuer": "claim_queuer_period_s",
    "batch_poller": "batch_poller_period_s",
    # Before the sender, which then finds what it made. How late an endpoint may be told, beside
    # the sending; a run without news is one query.
    "endpoint_feeder": 1.0,
    "webhook_sender": "webhook_sender_period_s",
    # Only repairs copies in Redis: a change by `datp groups set` writes them itself.
    "group_cache": 10.0,
    "watcher": "watcher_period_s",
    # Carries out what was approved when a process died right then; an expiry may be so late.
    "approvals": 15.0,
    # A person waits for what it does; a run without an order is one query.
    "operator_runs": 2.0,
    # A row can be changed unnoticed until it is in the chain: seconds, at one statement a run.
    "audit_sealer": 10.0,
}
#: These run where batches are submitted: where a worker of the ledger group lives, else in the
#: maintenance group. Each process there is an instance that claims services.
LEDGER_JOBS = frozenset({"claim_queuer", "batch_poller"})
#: Job -> role of the node groups that do it. Beat's message goes to the same queue as ever; a
#: worker there that lacks the role passes it on to a group that has it. Where no group was given
#: the role, and for all other jobs, the worker that takes the message does the job.
ROLES = {
    "archiver": "archiving",
    # Erasing rewrites the files of the journal, which are where the archiver writes them.
    "operator_runs": "archiving",
    "webhook_sender": "webhooks",
    "endpoint_feeder": "webhooks",
    "sleeper": "wakeup",
    "claim_queuer": "ledger",
    "batch_poller": "ledger",
}


def period_s(settings: Settings, job: str) -> float:
    period = JOBS[job]
    return float(getattr(settings, period)) if isinstance(period, str) else period


def beat_schedule(settings: Settings) -> dict[str, dict[str, Any]]:
    """For Celery's `beat_schedule`. All to one queue, which every installation has a worker for."""
    return {
        job: {
            "task": TASK_PREFIX + job,
            "schedule": period_s(settings, job),
            "options": {
                "queue": settings.maintenance_group,
                "priority": PRIORITY,
                "expiration": KEPT_S,
            },
        }
        for job in JOBS
    }
