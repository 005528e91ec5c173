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
from datp_tasks.live.queue_trends import oldest_by_group
from datp_tasks.live.store import LiveStore
from datp_tasks.record.timeouts import Timeouts
from datp_tasks.record.webhooks import Webhooks


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
        **_groups(register, backlog, maintenance_group),
        **_sizes_and_lags(live, now_ms),
        "lag|timeouts": timeouts.peek().lag_s,
        "lag|webhooks": webhooks.lag_s(),
    }
    metrics.add(counts, gauges, now_ms // 1_000)
    return Result(counted=sum(counts.values()))


def _sizes_and_lags(live: LiveStore, now_ms: int) -> dict[str, float]:
    found: dict[str, float] = {f"list|{name}": size for name, size in live.sizes().items()}
    found["journal"] = ArchiveFeed(live).journal_length()
    found["lag|wake"] = _lag_s(live, "sleepingZ", now_ms)
    found["lag|archive"] = _lag_s(live, "toArchiveZ", now_ms)
    oldest = oldest_by_group(live, now_ms)
    found["lag|queue"] = max(oldest.values(), default=0.0)
    return found | {f"waiting|{group}": waited_s for group, waited_s in oldest.items()}


def _groups(
    register: NodeRegister, backlog: Callable[[str], int], maintenance_group: str
) -> dict[str, float]:
    """The messages that wait for each group, and its nodes."""
    standing = register.look()
    found: dict[str, float] = {}
    for group in sorted(standing.groups() | {maintenance_group}):
        # One whose queue has emptied has no oldest any more.
        found[f"waiting|{group}"] = 0.0
        found[f"queue|{group}"] = backlog(group)
        found[f"nodes|{group}"] = sum(node.group == group for node in standing.live)
    return found


def _lag_s(live: LiveStore, list_name: str, now_ms: int) -> float:
    """How long the most overdue of a list has been due; 0 if none is."""
    oldest = live.listed(list_name, rows_max=1)
    return max(0.0, (now_ms - oldest[0][1]) / 1_000) if oldest else 0.0
