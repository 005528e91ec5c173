"""The schedule of webhooks in Redis: `webhooksZ:<owner>` in each shard, by next attempt.

Every owner has a schedule of its own and they are served in turn, so what is due for one waits
behind nothing that is due for another. `webhookOwnersZ` says which owners have something due.

What it says is only a hint, as a bell is: before anything is sent SQL is asked, and what Redis
has lost is put back from there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from datp_tasks.clock import Clock
from datp_tasks.live.keys import shard_of_tx
from datp_tasks.live.scripts import ScriptCall, call, script
from datp_tasks.live.store import LiveStore

LIST = "webhooksZ"
OWNERS = "webhookOwnersZ"
#: Owners that are looked at in a shard in one round. Those that may take nothing now are passed
#: over: they have attempts under way, so there are no more of them than a process has places.
OWNERS_MAX = 1_000

#: A transaction, the number of its event, and whose it is.
Member = tuple[str, int, str]


class WebhookSchedule:
    def __init__(self, live: LiveStore, clock: Clock) -> None:
        self._live = live
        self._clock = clock

    def take(self, *, batch_max: int, hold_s: float, room: Callable[[str], int]) -> list[Member]:
        """What is due, over all shards and owners; due again after `hold_s` unless placed anew.

        `room` says how many an owner may take at most.
        """
        calls: list[ScriptCall] = []
        owners: list[str] = []
        for shard, owner, each_max in self._shares(batch_max, room):
            calls.append(
                call(
                    script("take_webhooks"),
                    self._keys(shard, owner),
                    (self._now(), owner, each_max, int(hold_s * 1_000)),
                )
            )
            owners.append(owner)
        found: list[Member] = []
        for owner, (_, members) in zip(owners, self._live.run(calls), strict=True):
            parsed = (_parsed(member, owner) for member in members)
            found += [member for member in parsed if member is not None]
        return found

    def _shares(self, batch_max: int, room: Callable[[str], int]) -> list[tuple[str, str, int]]:
        """Which owners in which shards are asked, and for how many: each gets its part."""
        shards = list(self._live.shards)
        # Not always the same shards first, when there is more than can be taken.
        random.shuffle(shards)
        order = (self._now(), OWNERS_MAX)
        replies = self._live.run(
            [
                call(script("due_webhooks"), (self._live.keys.in_shard(shard, OWNERS),), order)
                for shard in shards
            ]
        )
        places: dict[str, list[str]] = {}
        # The first owner of each shard, then the second, and so on: those that wait longest.
        for rank in range(max(len(due) for _, due in replies)):
            for shard, (_, due) in zip(shards, replies, strict=True):
                if rank < len(due):
                    places.setdefault(due[rank], []).append(shard)
        rooms = {owner: room(owner) for owner in places}
        able = [owner for owner, each_max in rooms.items() if each_max > 0][:batch_max]
        shares = []
        for owner in able:
            owner_max = min(rooms[owner], -(-batch_max // len(able)))
            own = places[owner][:owner_max]
            shares += [(shard, owner, -(-owner_max // len(own))) for shard in own]
        return shares

    def place(
        self, waits: Sequence[tuple[Member, float | None]], *, only_new: bool = False
    ) -> None:
        """Each is due after so many seconds; None takes it off the schedule."""
        calls: list[ScriptCall] = []
        for (tx_id, sequence, owner), wait_s in waits:
            wait: str | int = "" if wait_s is None else int(wait_s * 1_000)
            order = (self._now(), owner, f"{tx_id}:{sequence}", wait, int(only_new))
            calls.append(call(script("place_webhook"), self._keys(tx_id[1:3], owner), order))
        self._live.run(calls)

    def size(self) -> int:
        """How many notifications are on the schedule."""
        keys = self._live.keys
        owners = self._live.send(
            [("ZRANGE", keys.in_shard(shard, OWNERS), 0, -1) for shard in self._live.shards]
        )
        return sum(
            self._live.send(
                [
                    ("ZCARD", self._keys(shard, owner)[0])
                    for shard, found in zip(self._live.shards, owners, strict=True)
                    for owner in found
                ]
            )
        )

    def _keys(self, shard: str, owner: str) -> tuple[str, str]:
        in_shard = self._live.keys.in_shard
        return in_shard(shard, f"{LIST}:{owner}"), in_shard(shard, OWNERS)

    def _now(self) -> int | str:
        now_ms = self._clock.now_ms()
        return "" if now_ms is None else now_ms


def _parsed(member: str, owner: str) -> Member | None:
    tx_id, _, sequence = member.partition(":")
    return (tx_id, int(sequence), owner) if shard_of_tx(tx_id) and sequence.isdecimal() else None
