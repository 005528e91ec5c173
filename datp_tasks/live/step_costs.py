"""What steps cost, as all processes have measured it: for those who ring, and for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis import Redis

from datp_tasks.live.keys import Keys


class StepCosts:
    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._costs_key = keys.outside("stepCostH")
        #: Where times are added up, for people.
        self._times_key = keys.outside("stepTimesH")

    def read(self) -> dict[str, int]:
        """Microseconds of a transaction, by place."""
        book = self._redis.hgetall(self._costs_key)
        return {str(name): int(cost) for name, cost in book.items()}

    def publish(self, costs_us: Mapping[str, int], times: Mapping[str, tuple[int, int]]) -> None:
        """New costs by place; and by place how many passed, and the microseconds they took."""
        fields: Any = dict(costs_us)
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.hset(self._costs_key, mapping=fields)
        for place, (passed, spent_us) in times.items():
            pipeline.hincrby(self._times_key, f"{place}|n", passed)
            pipeline.hincrby(self._times_key, f"{place}|us", spent_us)
        pipeline.execute()
