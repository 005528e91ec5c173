"""The register of nodes: who lives, what each offers and how busy it is, and who was lost.

A node writes its record with every beat; one that leaves in order takes it along. One that just
falls silent keeps its place in the register, without a record, until it was replaced: that is
how the watcher knows of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from datp_tasks.live.keys import Keys
from datp_tasks.live.store import LiveStore

RECORD_TTL_S = 60
#: No node came in its place for so long: it is not missed any more.
LOST_KEPT_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Node:
    """A node of one group; one that serves two groups is two of these."""

    group: str
    name: str
    record: Mapping[str, Any]

    @property
    def joined_ms(self) -> int:
        return int(self.record.get("joinedMs", 0))

    @property
    def load(self) -> dict[str, Any]:
        found = self.record.get("load")
        return found if isinstance(found, dict) else {}

    @property
    def step_types(self) -> list[str]:
        names = self.record.get("stepTypes")
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


@dataclass(frozen=True, slots=True)
class Standing:
    """All nodes at one moment."""

    live: list[Node]
    #: Group -> node -> last beat, for nodes that are gone and were not replaced yet.
    lost: dict[str, dict[str, int]]

    def groups(self) -> set[str]:
        """Groups that have a live node."""
        return {node.group for node in self.live}


class NodeRegister:
    def __init__(self, live: LiveStore, *, stale_ms: int, grace_ms: int) -> None:
        self._live = live
        self._redis = live.redis
        self._keys = live.keys
        self._stale_ms = stale_ms
        self._grace_ms = grace_ms

    def write(self, node: str, groups: Iterable[str], record: Mapping[str, Any]) -> None:
        """A beat: the node lives, and this is how it is."""
        now_ms = self._live.server_now_ms()
        text = json.dumps({**record, "beatMs": now_ms})
        pipeline = self._redis.pipeline(transaction=False)
        for group in groups:
            pipeline.set(self._keys.node(group, node), text, ex=RECORD_TTL_S)
            pipeline.zadd(registered_key(self._keys), {f"{group}/{node}": now_ms})
        pipeline.execute()

    def describe(self, step_types: Mapping[str, Mapping[str, Any]]) -> None:
        """What the step types of a node are for; they are many words, so not with every beat."""
        fields: dict[Any, Any] = {name: json.dumps(about) for name, about in step_types.items()}
        if fields:
            self._redis.hset(self._keys.outside("stepTypesH"), mapping=fields)

    def leave(self, node: str, groups: Iterable[str]) -> None:
        """In order: no alert is raised for it."""
        pipeline = self._redis.pipeline(transaction=False)
        for group in groups:
            pipeline.delete(self._keys.node(group, node))
            pipeline.zrem(registered_key(self._keys), f"{group}/{node}")
            pipeline.zrem(self._missed_key, f"{group}/{node}")
        pipeline.execute()

    def nodes(self) -> list[Node]:
        """Those that beat until lately, by group and name."""
        return live_nodes(self._redis, self._keys, self._live.server_now_ms() - self._stale_ms)

    def look(self) -> Standing:
        """Who lives and who is lost: silent for a while, and still silent at a second look."""
        now_ms = self._live.server_now_ms()
        silent = {
            member: beat_ms
            for member, beat_ms in self._scores(registered_key(self._keys)).items()
            if beat_ms < now_ms - self._stale_ms
        }
        missed = self._scores(self._missed_key)
        self._remember_missed(silent, missed, now_ms)
        lost: dict[str, dict[str, int]] = {}
        for member, beat_ms in silent.items():
            if member in missed and now_ms - missed[member] >= self._grace_ms:
                group, _, node = member.partition("/")
                lost.setdefault(group, {})[node] = beat_ms
        live = live_nodes(self._redis, self._keys, now_ms - self._stale_ms)
        return Standing(live, lost)

    def _scores(self, key: str) -> dict[str, int]:
        members: Any = self._redis.zrange(key, 0, -1, withscores=True)
        return {str(member): int(score) for member, score in members}

    def _remember_missed(
        self, silent: Mapping[str, int], missed: Mapping[str, int], now_ms: int
    ) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for member in silent.keys() - missed.keys():
            pipeline.zadd(self._missed_key, {member: now_ms}, nx=True)
        for member in missed.keys() - silent.keys():
            pipeline.zrem(self._missed_key, member)
        pipeline.execute()

    def forget_lost(self, group: str, nodes: Iterable[str]) -> None:
        """They were replaced."""
        pipeline = self._redis.pipeline(transaction=False)
        for node in nodes:
            pipeline.zrem(registered_key(self._keys), f"{group}/{node}")
            pipeline.zrem(self._missed_key, f"{group}/{node}")
        pipeline.execute()

    @property
    def _missed_key(self) -> str:
        return self._keys.in_shard("nodes", "missedZ")


def described_step_types(redis: Any, keys: Keys) -> dict[str, dict[str, Any]]:
    """What nodes said of their step types, also of those that no node offers any more."""
    found = redis.hgetall(keys.outside("stepTypesH"))
    read = {_text(name): _record(text) for name, text in found.items()}
    return {name: about for name, about in read.items() if about is not None}


def described_step_type(redis: Any, keys: Keys, name: str) -> dict[str, Any] | None:
    """What a node said of one step type; None if none did."""
    return _record(redis.hget(keys.outside("stepTypesH"), name))


def registered_key(keys: Keys) -> str:
    return keys.in_shard("nodes", "registeredZ")


def live_nodes(redis: Any, keys: Keys, since_ms: float | str = "-inf") -> list[Node]:
    """Nodes of the register that still have their record and beat since then."""
    members = redis.zrangebyscore(registered_key(keys), since_ms, "+inf")
    names = [_text(member).partition("/")[::2] for member in members]
    # A pipeline, because on a cluster the nodes' keys lie on different servers.
    pipeline = redis.pipeline(transaction=False)
    for group, name in names:
        pipeline.get(keys.node(group, name))
    records = map(_record, pipeline.execute())
    found = [
        Node(group, name, record)
        for (group, name), record in zip(names, records, strict=True)
        if record is not None
    ]
    return sorted(found, key=lambda node: (node.group, node.name))


def count_nodes(redis: Any, keys: Keys, group: str) -> int:
    """How many nodes a group has, about: by the register alone, in one round trip."""
    beats = redis.zrange(registered_key(keys), 0, -1, withscores=True)
    since_ms = max((beat_ms for _, beat_ms in beats), default=0) - RECORD_TTL_S * 1_000
    return sum(
        _text(member).partition("/")[0] == group for member, beat_ms in beats if beat_ms >= since_ms
    )


def _record(text: Any) -> dict[str, Any] | None:
    """A node's record; None if it has just gone or is not ours."""
    try:
        found = json.loads(_text(text) or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
