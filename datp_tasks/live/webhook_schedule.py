"""The schedule of webhooks in Redis: `webhooksZ` in each shard, notifications by next attempt.

What it says is only a hint, as a bell is: before anything is sent SQL is asked, and what Redis
has lost is put back from there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from datp_tasks.clock import Clock
from datp_tasks.live.keys import shard_of_tx
from datp_tasks.live.scripts import Call, call, script
from datp_tasks.live.store import LiveStore

LIST = "webhooksZ"

#: A transaction and the number of its event.
Member = tuple[str, int]


class WebhookSchedule:
    def __init__(self, live: LiveStore, clock: Clock) -> None:
        self._live = live
        self._clock = clock

    def take(self, *, batch_max: int, hold_s: float) -> list[Member]:
        """What is due, over all shards; due again after `hold_s` unless it is placed anew."""
        shards = list(self._live.shards)
        # Not always the same shards first, when there is more than can be taken.
        random.shuffle(shards)
        found: list[Member] = []
        each_max = max(1, -(-batch_max // len(shards)))
        calls: list[Call] = [
            call(
                script("take_webhooks"),
                (self._live.keys.in_shard(shard, LIST),),
                (self._now(), each_max, int(hold_s * 1_000)),
            )
            for shard in shards
        ]
        for _, members in self._live.run(calls):
            found += [member for member in map(_parsed, members) if member is not None]
        return found

    def place(
        self, waits: Sequence[tuple[Member, float | None]], *, only_new: bool = False
    ) -> None:
        """Each is due after so many seconds; None takes it off the schedule."""
        calls: list[Call] = []
        for (tx_id, sequence), wait_s in waits:
            wait: str | int = "" if wait_s is None else int(wait_s * 1_000)
            order = (self._now(), f"{tx_id}:{sequence}", wait, int(only_new))
            calls.append(
                call(script("place_webhook"), (self._live.keys.of_tx(tx_id, LIST),), order)
            )
        self._live.run(calls)

    def size(self) -> int:
        """How many notifications are on the schedule."""
        pipeline = self._live.redis.pipeline(transaction=False)
        for shard in self._live.shards:
            pipeline.zcard(self._live.keys.in_shard(shard, LIST))
        return sum(pipeline.execute())

    def _now(self) -> int | str:
        now_ms = self._clock.now_ms()
        return "" if now_ms is None else now_ms


def _parsed(member: str) -> Member | None:
    tx_id, _, sequence = member.partition(":")
    return (tx_id, int(sequence)) if shard_of_tx(tx_id) and sequence.isdecimal() else None
