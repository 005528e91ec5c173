"""Node groups: what operators can decide about them, and what that means.

A value that was never set leaves things as they are without it: concurrency as a worker was
started, pauses and batches as the settings say. A role that no group was given stays with the
group that beat's messages go to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datp_tasks.errors import GroupInvalid
from datp_tasks.settings import GROUP_NAME


@dataclass(frozen=True, slots=True)
class Limit:
    """One value of a group: its column, and what it may be."""

    column: str
    high: int
    meaning: str
    #: The setting that it takes the place of, where the group does a job.
    setting: str = ""


#: By the names of the seed, which Redis, the API and the command line use.
LIMITS = {
    "concurrency": Limit("concurrency", 1_000, "processes of each worker; 0 stops the group"),
    "archiveBatchSize": Limit(
        "archive_batch_size", 10_000, "above 0: the group archives", "archiver_batch_max"
    ),
    "webhookWorkers": Limit(
        "webhook_workers", 1_000, "above 0: the group sends webhooks", "webhook_workers"
    ),
    "wakeupBatchSize": Limit(
        "wakeup_batch_size", 100_000, "above 0: the group wakes sleepers", "sleeper_batch_max"
    ),
    "ledger": Limit("ledger", 1, "1: the group claims services and asks ledgers"),
    "webhookPause": Limit("webhook_pause_ms", 60_000, "milliseconds", "webhook_pause_ms"),
    "webhookPauseBusy": Limit(
        "webhook_pause_busy_ms", 60_000, "milliseconds, all workers busy", "webhook_pause_busy_ms"
    ),
    "webhookPauseIdle": Limit(
        "webhook_pause_idle_ms", 60_000, "milliseconds, nothing to send", "webhook_pause_idle_ms"
    ),
    "longRunningSeconds": Limit(
        "long_running_s", 31_536_000, "seconds a transaction may run before an alert; 0: no alert"
    ),
    "queueAgeSeconds": Limit(
        "queue_age_s", 31_536_000, "seconds a transaction may wait before an alert; 0: no alert"
    ),
}
#: Role -> the value that gives it.
ROLES = {
    "archiving": "archiveBatchSize",
    "webhooks": "webhookWorkers",
    "wakeup": "wakeupBatchSize",
    "ledger": "ledger",
}


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """One group; `values` holds only what was set."""

    name: str
    values: Mapping[str, int]

    @property
    def concurrency(self) -> int | None:
        return self.values.get("concurrency")

    @property
    def is_stopped(self) -> bool:
        return self.concurrency == 0

    @property
    def roles(self) -> list[str]:
        return [role for role, value in ROLES.items() if self.values.get(value, 0) > 0]

    @property
    def overrides(self) -> dict[str, int]:
        """Settings that jobs have where this group does them; a 0 only takes a role away."""
        giving = set(ROLES.values())
        return {
            LIMITS[name].setting: value
            for name, value in self.values.items()
            if LIMITS[name].setting and (value > 0 or name not in giving)
        }


def check_changes(name: str, changes: Mapping[str, int | None], maintenance_group: str) -> None:
    """GroupInvalid if the values of a group cannot be changed like this."""
    if not GROUP_NAME.fullmatch(name):
        raise GroupInvalid(f"{name!r} is not the name of a node group: {GROUP_NAME.pattern}")
    for key, value in changes.items():
        limit = LIMITS.get(key)
        if limit is None:
            raise GroupInvalid(f"a node group has no {key!r}; it has {', '.join(LIMITS)}")
        if value is not None and not 0 <= value <= limit.high:
            raise GroupInvalid(f"{key} must be from 0 to {limit.high}, was {value}")
    if name == maintenance_group and changes.get("concurrency") == 0:
        raise GroupInvalid(
            f"{name} takes the messages of beat, so nothing would be woken, archived or repaired "
            "while it is stopped. Stop another group, or give maintenance a group of its own "
            "(DATP_MAINTENANCE_GROUP)."
        )
