"""What beat schedules, how often, and where it goes."""

from __future__ import annotations

from typing import Any

from datp_tasks.bells.job_messages import KEPT_S, PRIORITY
from datp_tasks.settings import Settings

TASK_PREFIX = "datp.maintenance."

#: Job (a module beside this one) -> the setting that holds its period.
JOBS = {
    "sleeper": "sleeper_period_s",
    "timeout_handler": "timeout_handler_period_s",
    "reaper": "reaper_period_s",
    "reconciler": "reconciler_period_s",
    "archiver": "archiver_period_s",
    "meter": "meter_period_s",
    "retention": "retention_period_s",
    "pipeline_cache": "pipeline_cache_period_s",
    "claim_queuer": "claim_queuer_period_s",
    "batch_poller": "batch_poller_period_s",
    # Before the sender, which then finds what it made.
    "endpoint_feeder": "endpoint_feeder_period_s",
    "webhook_sender": "webhook_sender_period_s",
    "group_cache": "group_cache_period_s",
    "watcher": "watcher_period_s",
    "approvals": "approvals_period_s",
    "audit_sealer": "audit_sealer_period_s",
}
#: These run where batches are submitted: where a worker of the ledger group lives, else in the
#: maintenance group. Each process there is an instance that claims services.
LEDGER_JOBS = frozenset({"claim_queuer", "batch_poller"})
#: Job -> role of the node groups that do it. Beat's message goes to the same queue as ever; a
#: worker there that lacks the role passes it on to a group that has it. Where no group was given
#: the role, and for all other jobs, the worker that takes the message does the job.
ROLES = {
    "archiver": "archiving",
    "webhook_sender": "webhooks",
    "endpoint_feeder": "webhooks",
    "sleeper": "wakeup",
    "claim_queuer": "ledger",
    "batch_poller": "ledger",
}


def period_s(settings: Settings, job: str) -> float:
    return float(getattr(settings, JOBS[job]))


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
