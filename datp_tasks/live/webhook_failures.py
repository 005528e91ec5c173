"""How often webhooks of an owner to a target failed in a row, under a key that ends by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from redis import Redis

from datp_tasks.live.keys import Keys


class Tries(NamedTuple):
    """What a batch of attempts says of one target."""

    failed: int
    #: One arrived, so counting starts anew.
    arrived: bool


class WebhookFailures:
    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    def count(self, by_target: Mapping[str, Tries], *, period_ms: int) -> dict[str, int]:
        """Failures in a row of each target that failed, these included."""
        pipeline = self._redis.pipeline(transaction=False)
        places: dict[str, int] = {}
        for target, tries in by_target.items():
            if tries.arrived:
                pipeline.delete(self._key(target))
            if tries.failed:
                places[target] = len(pipeline)
                pipeline.incrby(self._key(target), tries.failed)
                pipeline.pexpire(self._key(target), period_ms, nx=True)
        answers = pipeline.execute()
        return {target: int(answers[place]) for target, place in places.items()}

    def forget(self, target: str) -> None:
        self._redis.delete(self._key(target))

    def _key(self, target: str) -> str:
        # A URL can be long and hold anything; its hash cannot.
        return self._keys.outside(f"webhookFail:{hashlib.sha256(target.encode()).hexdigest()[:32]}")
