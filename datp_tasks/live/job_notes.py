"""Small values that jobs leave for each other: gates that let one pass, and where a run goes on.

None of them is the record: should Redis lose one, a job runs once more or begins again.
"""

from __future__ import annotations

from datp_tasks.live.store import LiveStore


class TurnGate:
    """Lets one process pass, and then none for a while."""

    def __init__(self, live: LiveStore, name: str) -> None:
        self._redis = live.redis
        self._key = live.keys.outside(name)

    def passes(self, shut_ms: int) -> bool:
        """Whether this process may pass; the gate is shut for so long then."""
        return bool(self._redis.set(self._key, "1", nx=True, px=shut_ms))

    def keep_shut(self, shut_ms: int) -> None:
        self._redis.pexpire(self._key, shut_ms)

    def shut(self, shut_ms: int) -> None:
        """Also one that has opened by itself meanwhile."""
        self._redis.set(self._key, "1", px=shut_ms)

    def open(self) -> None:
        self._redis.delete(self._key)


class Note:
    """One text."""

    def __init__(self, live: LiveStore, name: str) -> None:
        self._redis = live.redis
        self._key = live.keys.outside(name)

    def read(self) -> str | None:
        found = self._redis.get(self._key)
        return None if found is None else str(found)

    def write(self, text: str | int, *, only_if_missing: bool = False) -> None:
        self._redis.set(self._key, text, nx=only_if_missing)

    def forget(self) -> None:
        self._redis.delete(self._key)


class Cursors:
    """Where the next run goes on, by the name of what it goes through."""

    def __init__(self, live: LiveStore, name: str) -> None:
        self._redis = live.redis
        self._key = live.keys.outside(name)

    def get(self, name: str) -> str:
        return str(self._redis.hget(self._key, name) or "")

    def set(self, name: str, value: str) -> None:
        self._redis.hset(self._key, name, value)
