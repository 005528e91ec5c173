"""Reading the live store: transactions, lists and nodes as they are now. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from redis import Redis

from datp_tasks.clock import Clock
from datp_tasks.live.keys import LISTS, Keys


class Reading:
    """Part of the live store."""

    redis: Redis
    keys: Keys
    _clock: Clock
    _shards: list[str]

    if TYPE_CHECKING:

        def send(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]: ...

    def fields_many(self, tx_ids: Sequence[str]) -> list[dict[str, str]]:
        """All fields of each transaction; empty for one that is not here."""
        pipeline = self.redis.pipeline(transaction=False)
        for tx_id in tx_ids:
            pipeline.hgetall(self.keys.state(tx_id))
        return list(pipeline.execute())

    def named_many(self, tx_ids: Sequence[str], names: Sequence[str]) -> list[dict[str, str]]:
        """Some fields of each transaction, as far as it has them: the state JSON stays there."""
        answers = self.send([("HMGET", self.keys.state(tx), *names) for tx in tx_ids])
        return [
            {name: value for name, value in zip(names, values, strict=True) if value is not None}
            for values in answers
        ]

    def read_and_keep(
        self, tx_ids: Sequence[str], names: Sequence[str], keep_ms: int
    ) -> list[dict[str, str]]:
        """The same; what was about to leave memory stays for so long again.

        GT lets no time to live begin where there is none, and shortens none.
        """
        commands: list[tuple[str | int, ...]] = []
        for tx in tx_ids:
            commands.append(("HMGET", self.keys.state(tx), *names))
            commands.append(("PEXPIRE", self.keys.state(tx), keep_ms, "GT"))
        return [
            {name: value for name, value in zip(names, values, strict=True) if value is not None}
            for values in self.send(commands)[::2]
        ]

    def ping(self) -> None:
        """An error if Redis does not answer."""
        self.redis.ping()

    def score(self, tx_id: str, name: str) -> float | None:
        """The time by which a list has the transaction; None if it is not there."""
        found = self.redis.zscore(self.keys.of_tx(tx_id, name), tx_id)
        return None if found is None else float(found)

    def beats(self, nodes: Sequence[str]) -> list[float | None]:
        """When each node beat last, in ms; None for one that is not known."""
        return list(self.redis.zmscore(self.keys.nodes, list(nodes))) if nodes else []

    def members(self, shard: str, name: str) -> Iterator[str]:
        """Transactions in a list of a shard; one that moves meanwhile may be missed."""
        for member, _ in self.redis.zscan_iter(self.keys.in_shard(shard, name), count=500):
            yield member

    def exist_many(self, tx_ids: Sequence[str]) -> list[bool]:
        pipeline = self.redis.pipeline(transaction=False)
        for tx_id in tx_ids:
            pipeline.exists(self.keys.state(tx_id))
        return [bool(found) for found in pipeline.execute()]

    def placed_many(self, tx_ids: Sequence[str]) -> list[bool]:
        """Whether each is in memory, or asleep and known to wake."""
        commands: list[tuple[str | int, ...]] = []
        for tx in tx_ids:
            commands.append(("EXISTS", self.keys.state(tx)))
            commands.append(("ZSCORE", self.keys.of_tx(tx, "sleepingZ"), tx))
        answers = self.send(commands)
        return [
            bool(here) or score is not None
            for here, score in zip(answers[::2], answers[1::2], strict=True)
        ]

    def versions_many(self, tx_ids: Sequence[str]) -> list[tuple[int | None, str]]:
        """Version and node of each, as far as it is here."""
        answers = self.send([("HMGET", self.keys.state(tx), "version", "node") for tx in tx_ids])
        return [(int(version) if version else None, node or "") for version, node in answers]

    def due(self, list_name: str, *, before_ms: int = 0, batch_max: int) -> list[str]:
        """Members of a list whose time has come (minus `before_ms`), spread over the shards."""
        until = self.server_now_ms() - before_ms
        per_shard = self.share_of(batch_max)
        pipeline = self.redis.pipeline(transaction=False)
        for shard in self._shards:
            key = self.keys.in_shard(shard, list_name)
            pipeline.zrangebyscore(key, "-inf", until, start=0, num=per_shard)
        return [tx for found in pipeline.execute() for tx in found][:batch_max]

    def overdue_page(
        self, list_name: str, *, before_ms: int, rank: int, rows_max: int
    ) -> tuple[list[tuple[str, float]], bool]:
        """Overdue members with their scores, from a rank in each shard on, and whether there may
        be more of them.

        A long line is looked through page by page. Those who leave it meanwhile move the others
        up, so that a page may pass some over.
        """
        until = self.server_now_ms() - before_ms
        per_shard = self.share_of(rows_max)
        pipeline = self.redis.pipeline(transaction=False)
        for shard in self._shards:
            key = self.keys.in_shard(shard, list_name)
            pipeline.zrange(key, rank, rank + per_shard - 1, withscores=True)
        found = [[pair for pair in part if pair[1] <= until] for part in pipeline.execute()]
        return [pair for part in found for pair in part], any(len(p) == per_shard for p in found)

    def share_of(self, batch_max: int) -> int:
        """How many of a batch one shard may give."""
        return max(1, -(-batch_max // len(self._shards)))

    def queued_since(self, tx_ids: Sequence[str]) -> list[float | None]:
        """When each was queued, in milliseconds; None for one that is not.

        Ringing again gives it a new place in the line, and notes since when it waits.
        """
        commands: list[tuple[str | int, ...]] = []
        for tx in tx_ids:
            commands.append(("ZSCORE", self.keys.of_tx(tx, "queuedZ"), tx))
            commands.append(("HMGET", self.keys.state(tx), "sequence", "rung"))
        answers = self.send(commands)
        found: list[float | None] = []
        for score, (sequence, rung) in zip(answers[::2], answers[1::2], strict=True):
            found.append(None if score is None else queued_ms(float(score), sequence, rung))
        return found

    def first_in_line(self, rows_max: int) -> list[tuple[str, float]]:
        """Group of each of those that are queued first in their shard, and since when in ms.

        Each shard gives its share: a whole front of each would be read to drop nearly all of it. A
        group whose few wait behind many of another group in their shard is not among them.
        """
        pipeline = self.redis.pipeline(transaction=False)
        last = self.share_of(rows_max) - 1
        for shard in self._shards:
            pipeline.zrange(self.keys.in_shard(shard, "queuedZ"), 0, last, withscores=True)
        first = [pair for part in pipeline.execute() for pair in part]
        names = ("group", "sequence", "rung")
        fields = self.send([("HMGET", self.keys.state(tx), *names) for tx, _ in first])
        return [
            (group, queued_ms(score, sequence, rung))
            for (_, score), (group, sequence, rung) in zip(first, fields, strict=True)
            if group is not None
        ]

    def listed(self, list_name: str, *, rows_max: int) -> list[tuple[str, float]]:
        """Members of a list with their scores, lowest first, over all shards."""
        pipeline = self.redis.pipeline(transaction=False)
        for shard in self._shards:
            key = self.keys.in_shard(shard, list_name)
            pipeline.zrange(key, 0, rows_max - 1, withscores=True)
        found = [pair for part in pipeline.execute() for pair in part]
        return sorted(((tx, score) for tx, score in found), key=lambda each: each[1])[:rows_max]

    def running_on(self, node: str) -> list[str]:
        pipeline = self.redis.pipeline(transaction=False)
        for shard in self._shards:
            pipeline.smembers(self.keys.in_shard(shard, f"runningS:{node}"))
        return [tx for found in pipeline.execute() for tx in sorted(found)]

    def sizes(self) -> dict[str, int]:
        """How many transactions each list holds, over all shards."""
        pipeline = self.redis.pipeline(transaction=False)
        for name in LISTS:
            for shard in self._shards:
                pipeline.zcard(self.keys.in_shard(shard, name))
        counts = pipeline.execute()
        step = len(self._shards)
        return {n: sum(counts[i * step : (i + 1) * step]) for i, n in enumerate(LISTS)}

    def listed_nodes(self, nodes: Sequence[str]) -> set[str]:
        """Those that beat, or did until lately."""
        pipeline = self.redis.pipeline(transaction=False)
        for node in nodes:
            pipeline.zscore(self.keys.nodes, node)
        scores = pipeline.execute()
        return {node for node, score in zip(nodes, scores, strict=True) if score is not None}

    def server_now_ms(self) -> int:
        given = self._clock.now_ms()
        if given is not None:
            return given
        seconds, microseconds = self.redis.time()
        return int(seconds) * 1_000 + int(microseconds) // 1_000


def queued_ms(score: float, sequence: str | None, rung: str | None) -> float:
    """Since when it waits: its place in the line, unless an earlier one is noted for this wait."""
    of_sequence, _, noted_ms = (rung or "").partition(":")
    return float(noted_ms) if noted_ms and of_sequence == sequence else score
