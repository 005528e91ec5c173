"""How long transactions wait for each node group, and whether more and more do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datp_tasks.live.metrics import RESOLUTIONS, Metrics
from datp_tasks.live.store import LiveStore

#: The line is in the order of the last bells; those that wait longest are near its front.
FIRST_IN_LINE = 500
#: The minute that the present is compared with begins so long ago.
OVER_S, MINUTE_S = 300, 60


@dataclass(frozen=True, slots=True)
class QueueTrend:
    """The queue of one group. `before` is None while too little is known of the past."""

    oldest_s: float
    now: int
    before: float | None
    over_s: float = OVER_S

    def grows(self, messages_min: int, *, factor: float) -> bool:
        if self.before is None:
            return False
        return self.now > messages_min and self.now > factor * self.before


class QueueTrends:
    def __init__(self, live: LiveStore) -> None:
        self._live = live

    def look(self, waiting: Mapping[str, int]) -> dict[str, QueueTrend]:
        """`waiting`: the messages in the queue of each group, now."""
        now_ms = self._live.server_now_ms()
        oldest = oldest_by_group(self._live, now_ms)
        before = self._before(list(waiting), now_ms // 1_000)
        return {
            group: QueueTrend(oldest.get(group, 0.0), waiting.get(group, 0), before.get(group))
            for group in waiting.keys() | oldest.keys()
        }

    def _before(self, groups: list[str], now_s: int) -> dict[str, float]:
        """The mean of what the meter saw in the first minute of the window."""
        metrics = Metrics(self._live.redis, self._live.keys)
        samples = metrics.sampled(
            [f"queue|{group}" for group in groups],
            RESOLUTIONS["fine"],
            since_s=now_s - OVER_S + RESOLUTIONS["fine"].slot_s,
            until_s=now_s - OVER_S + MINUTE_S,
        )
        return {
            group: sum(seen) / len(seen)
            for group, seen in zip(groups, samples, strict=True)
            if seen
        }


def oldest_by_group(
    live: LiveStore, now_ms: int, *, first: int = FIRST_IN_LINE
) -> dict[str, float]:
    """Seconds that the first of each group have waited, also if they were rung again in vain."""
    oldest: dict[str, float] = {}
    for group, queued_ms in live.first_in_line(first):
        waited_s = max(0.0, now_ms - queued_ms) / 1_000
        oldest[group] = max(waited_s, oldest.get(group, 0.0))
    return oldest
