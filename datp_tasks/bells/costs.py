"""The cost book: how long a transaction takes from a given place, so that a vector stays short.

Workers measure and publish to Redis; the ringer reads. A place that no worker has measured yet
gets vectors of one.
"""

from __future__ import annotations

import logging
import threading
import time

from datp_tasks.live.redis_errors import RedisError
from datp_tasks.live.step_costs import StepCosts
from datp_tasks.settings import Settings

log = logging.getLogger("datp.bells")

#: Weight of a new measurement.
WEIGHT = 0.2
#: Doubling a vector pays if it makes each transaction cheaper by this factor.
PAYS = 0.8
#: A size that no hop had lately is not believed any more.
RECENT_HOPS = 20
#: A vector is made so small that its hop takes about this long: a client does not notice it.
BUDGET_MS = 25
#: However much sharing pays, a vector must not take so many times its budget.
TOO_LONG = 8
PUBLISH_EVERY_S = 1.0
READ_EVERY_S = 0.25
#: While a place is unknown its first measurement is worth waiting for, but not for long.
READ_UNKNOWN_EVERY_S = 0.05
#: What the engine itself adds per transaction. The fixed cost of a hop (a commit, round trips)
#: is left out: counting it would keep short vectors short.
ENGINE_US = 100


class Climb:
    """How many transactions of one place should share a hop, from what hops of each size took.

    As many as fit into the budget, as long as that is what their average cost says. But a step
    that shares its work (a commit, a statement for all) costs almost the same for one and for
    many. So a size that does not fit is doubled as long as doubling it makes each one cheaper.
    """

    __slots__ = ("_costs", "_hops", "_sizes", "_used")

    def __init__(self) -> None:
        #: By power of two: mean size and cost of the hops, and when there was one last.
        self._sizes: dict[int, float] = {}
        self._costs: dict[int, float] = {}
        self._used: dict[int, int] = {}
        self._hops = 0

    def add(self, transactions: int, cost_us: float) -> None:
        level = transactions.bit_length() - 1
        self._hops += 1
        self._used[level] = self._hops
        self._sizes[level] = _mean(self._sizes.get(level), transactions)
        self._costs[level] = _mean(self._costs.get(level), cost_us)

    def size(self, budget_us: float, *, shares: bool) -> float:
        # Smaller ones come when few are due, and say nothing about larger ones.
        recent = [n for n, used in self._used.items() if used > self._hops - RECENT_HOPS]
        level = max(recent)
        size, each_us = self._sizes[level], self._each_us(level)
        by_budget = budget_us / each_us
        if by_budget >= size or not shares:
            return by_budget
        if self._costs[level] > TOO_LONG * budget_us:
            return size / 2
        below = [n for n in self._costs if n < level]
        if not below:
            return 2 * size
        gain = each_us / self._each_us(max(below))
        if gain < PAYS ** (level - max(below)):
            return 2 * size
        return size if gain < 1 else size / 2

    def _each_us(self, level: int) -> float:
        return self._costs[level] / self._sizes[level] + ENGINE_US


def _mean(before: float | None, new: float) -> float:
    return float(new) if before is None else before + WEIGHT * (new - before)


class CostBook:
    def __init__(self, published: StepCosts, settings: Settings) -> None:
        self._published = published
        self._times: dict[str, tuple[int, int]] = {}
        self._budget_us = BUDGET_MS * 1_000
        self._vector_max = settings.vector_max
        self._known: dict[str, int] = {}
        self._climbs: dict[str, Climb] = {}
        self._measured: dict[str, float] = {}
        self._unpublished: set[str] = set()
        self._read_at = self._published_at = float("-inf")
        self._lock = threading.Lock()

    def is_known(self, place: str) -> bool:
        """Whether any hop from this place has been measured."""
        self.vector_size(place)
        return place in self._measured or place in self._known

    def vector_size(self, place: str) -> int:
        """How many transactions may share a bell for this place."""
        # What this process has measured itself is newer than what all have published.
        cost_us = self._measured.get(place)
        if cost_us is None:
            self._read_again_if_due(place)
            cost_us = self._known.get(place)
        if cost_us is None:
            return 1
        return max(1, min(self._vector_max, int(self._budget_us / max(cost_us, 1))))

    def measured(
        self, place: str, *, transactions: int, work_s: float, shares: bool = False
    ) -> None:
        """So much time was spent in the steps of a hop from this place.

        `shares`: its steps do some of their work for all at once.
        """
        with self._lock:
            climb = self._climbs.setdefault(place, Climb())
            climb.add(transactions, work_s * 1e6)
            size = climb.size(self._budget_us, shares=shares)
            # Published as what a transaction costs, of which that many fit into the budget.
            before_us = self._measured.get(place, 0.0)
            each_us = self._measured[place] = self._budget_us / max(size, 1e-3)
            is_news = not before_us / 2 < each_us < before_us * 2
            self._unpublished.add(place)
            passed, spent_us = self._times.get(place, (0, 0))
            self._times[place] = (passed + transactions, spent_us + int(work_s * 1e6))
        if is_news or time.monotonic() - self._published_at > PUBLISH_EVERY_S:
            self.publish()

    def publish(self) -> None:
        """Show the measurements to those who ring; an outage costs only precision."""
        with self._lock:
            fresh = {place: int(self._measured[place]) for place in self._unpublished}
            self._unpublished.clear()
            times, self._times = self._times, {}
            self._published_at = time.monotonic()
        if fresh:
            try:
                self._published.publish(fresh, times)
            except RedisError as error:
                log.debug("cost book not published: %s", error)

    def _read_again_if_due(self, place: str) -> None:
        every_s = READ_EVERY_S if place in self._known else READ_UNKNOWN_EVERY_S
        if time.monotonic() - self._read_at < every_s:
            return
        self._read_at = time.monotonic()
        try:
            self._known = self._published.read()
        except RedisError as error:
            log.debug("cost book not read: %s", error)
