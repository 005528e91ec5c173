"""The cost book: how long a transaction takes from a given place, so that a vector stays short.

Workers measure and publish to Redis; whoever rings reads. A place that nobody has measured yet
gets vectors of one.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from datp_tasks.settings import Settings

log = logging.getLogger("datp.bells")

#: Weight of a new measurement.
WEIGHT = 0.2
#: Of the average cost, what a transaction costs at least: sharing is not believed to do wonders.
SHARE_MIN = 0.1
PUBLISH_EVERY_S = 1.0
READ_EVERY_S = 0.25
#: While a place is unknown its first measurement is worth waiting for, but not for long.
READ_UNKNOWN_EVERY_S = 0.05
#: What the engine itself adds per transaction. The fixed cost of a hop (a commit, round trips)
#: is left out: counting it would keep short vectors short.
ENGINE_US = 100


class Fit:
    """A line through the last measurements: what a hop costs, and what each transaction adds.

    Only the latter limits a vector. A step whose commit takes longer than the budget would
    otherwise never get more than one transaction, although sharing is just what it needs.
    """

    __slots__ = ("cost", "n", "n_cost", "n_n", "weight")

    def __init__(self) -> None:
        self.weight = self.n = self.cost = self.n_n = self.n_cost = 0.0

    def add(self, transactions: int, cost_us: float) -> None:
        keep = 1 - WEIGHT
        self.weight = self.weight * keep + 1
        self.n = self.n * keep + transactions
        self.cost = self.cost * keep + cost_us
        self.n_n = self.n_n * keep + transactions * transactions
        self.n_cost = self.n_cost * keep + transactions * cost_us

    def each_us(self, sharing: float = 1.0) -> float:
        """Microseconds that one more transaction adds.

        `sharing`: as long as all vectors had one size, the part of their cost that is taken for
        that. Steps that share their work would otherwise never be tried together.
        """
        average = self.cost / self.n
        spread = self.weight * self.n_n - self.n * self.n
        if spread <= 1e-6 * self.n_n * self.weight:
            return average * sharing
        slope = (self.weight * self.n_cost - self.n * self.cost) / spread
        return min(average, max(slope, SHARE_MIN * average))


class CostBook:
    def __init__(self, redis: Redis, key: str, times_key: str, settings: Settings) -> None:
        self._redis = redis
        self._key = key
        #: Where times are added up, for people.
        self._times_key = times_key
        self._times: dict[str, tuple[int, int]] = {}
        self._budget_us = settings.vector_budget_ms * 1_000
        self._vector_max = settings.vector_max
        self._known: dict[str, int] = {}
        self._fits: dict[str, Fit] = {}
        self._measured: dict[str, float] = {}
        self._unpublished: set[str] = set()
        self._read_at = self._published_at = float("-inf")
        self._lock = threading.Lock()

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
        self, place: str, *, transactions: int, work_s: float, sharing: float = 1.0
    ) -> None:
        """So much time was spent in the steps of a hop from this place."""
        with self._lock:
            fit = self._fits.get(place)
            if fit is None:
                fit = self._fits[place] = Fit()
            fit.add(transactions, work_s * 1e6)
            before_us = self._measured.get(place, 0.0)
            each_us = self._measured[place] = fit.each_us(sharing) + ENGINE_US
            is_news = not before_us / 2 < each_us < before_us * 2
            self._unpublished.add(place)
            passed, spent_us = self._times.get(place, (0, 0))
            self._times[place] = (passed + transactions, spent_us + int(work_s * 1e6))
        if is_news or time.monotonic() - self._published_at > PUBLISH_EVERY_S:
            self.publish()

    def publish(self) -> None:
        """Show the measurements to those who ring; an outage costs only precision."""
        with self._lock:
            fresh: dict[str | bytes | bytearray | memoryview | int | float, Any] = {
                place: int(self._measured[place]) for place in self._unpublished
            }
            self._unpublished.clear()
            times, self._times = self._times, {}
            self._published_at = time.monotonic()
        if fresh:
            try:
                pipeline = self._redis.pipeline(transaction=False)
                pipeline.hset(self._key, mapping=fresh)
                for place, (passed, spent_us) in times.items():
                    pipeline.hincrby(self._times_key, f"{place}|n", passed)
                    pipeline.hincrby(self._times_key, f"{place}|us", spent_us)
                pipeline.execute()
            except RedisError as error:
                log.debug("cost book not published: %s", error)

    def _read_again_if_due(self, place: str) -> None:
        every_s = READ_EVERY_S if place in self._known else READ_UNKNOWN_EVERY_S
        if time.monotonic() - self._read_at < every_s:
            return
        self._read_at = time.monotonic()
        try:
            book = self._redis.hgetall(self._key)
        except RedisError as error:
            log.debug("cost book not read: %s", error)
            return
        self._known = {str(name): int(cost) for name, cost in book.items()}
