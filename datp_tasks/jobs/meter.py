"""Add what the scripts have counted to the series of metrics, and sample the gauges.

Moves:    no transaction; counters from the shards to the series.
Knows:    slots that are over. What was taken and not added when it crashes is missing in the
          series: metrics are no record.
Bound:    ROUNDS_MAX parts of what each shard has counted; as many gauges as there are groups.
Overlap:  harmless: each counter is taken once.
Crash:    the next run goes on with the next slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.metrics import Metrics, take_counts
from datp_tasks.live.nodes import NodeRegister
from datp_tasks.live.store import LiveStore
from datp_tasks.record.timeouts import Timeouts
from datp_tasks.record.webhooks import Webhooks

#: The line is in the order of the last bells; the one that waits longest is near its front.
FIRST_IN_LINE = 100


@dataclass(frozen=True, slots=True)
class Result:
    counted: int


def run_once(
    live: LiveStore,
    register: NodeRegister,
    timeouts: Timeouts,
    webhooks: Webhooks,
    backlog: Callable[[str], int],
    *,
    maintenance_group: str,
) -> Result:
    metrics = Metrics(live.redis, live.keys)
    counts = take_counts(live)
    now_ms = live.server_now_ms()
    gauges = {
        **_sizes_and_lags(live, now_ms),
        "lag|timeouts": timeouts.peek().lag_s,
        "lag|webhooks": webhooks.lag_s(),
        **_groups(register, backlog, maintenance_group),
    }
    metrics.add(counts, gauges, now_ms // 1_000)
    return Result(counted=sum(counts.values()))


def _sizes_and_lags(live: LiveStore, now_ms: int) -> dict[str, float]:
    found: dict[str, float] = {f"list|{name}": size for name, size in live.sizes().items()}
    found["journal"] = ArchiveFeed(live).journal_length()
    found["lag|wake"] = _lag_s(live, "sleepingZ", now_ms)
    found["lag|archive"] = _lag_s(live, "toArchiveZ", now_ms)
    found["lag|queue"] = _queue_lag_s(live, now_ms)
    return found


def _groups(
    register: NodeRegister, backlog: Callable[[str], int], maintenance_group: str
) -> dict[str, float]:
    """The messages that wait for each group, and its nodes."""
    standing = register.look()
    found: dict[str, float] = {}
    for group in sorted(standing.groups() | {maintenance_group}):
        found[f"queue|{group}"] = backlog(group)
        found[f"nodes|{group}"] = sum(node.group == group for node in standing.live)
    return found


def _lag_s(live: LiveStore, list_name: str, now_ms: int) -> float:
    """How long the most overdue of a list has been due; 0 if none is."""
    oldest = live.listed(list_name, rows_max=1)
    return max(0.0, (now_ms - oldest[0][1]) / 1_000) if oldest else 0.0


def _queue_lag_s(live: LiveStore, now_ms: int) -> float:
    """How long the first in the line have waited, also if they were rung again in vain."""
    first = live.listed("queuedZ", rows_max=FIRST_IN_LINE)
    since = live.queued_since([tx for tx, _ in first])
    waited_ms = [now_ms - queued_ms for queued_ms in since if queued_ms is not None]
    return max(0.0, *waited_ms) / 1_000 if waited_ms else 0.0
