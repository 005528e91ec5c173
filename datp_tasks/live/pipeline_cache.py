"""The copy of the pipelines in Redis: one hash per pipeline, `pipelineH:<name>`.

| field       | holds                                                        |
|-------------|--------------------------------------------------------------|
| inUse       | version that new transactions get; empty: none               |
| disabled    | "1" or "0"; missing: the head of this one was not copied yet |
| v:<version> | canonical JSON of that version                               |

SQL is the record. Only `PipelineStore.refresh` writes the head, under a lock in SQL. A version
never changes, so any process may fill it in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis

from datp_tasks.live.keys import Keys
from datp_tasks.model.pipeline import VERSION_CHARS, hash_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What is true of a pipeline now."""

    in_use: str | None
    disabled: bool


class PipelineCache:
    """Reads and writes the hashes; knows nothing of SQL."""

    def __init__(self, redis: redis.Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    def head(self, name: str) -> Head | None:
        """The copied head, or None if there is no copy."""
        found = self._redis.hmget(self._keys.pipeline(name), ["inUse", "disabled"])
        return _head(cast("list[Any]", found))

    def heads(self, names: Sequence[str]) -> list[Head | None]:
        """The same for many pipelines in one round trip."""
        batch = self._redis.pipeline(transaction=False)
        for name in names:
            batch.hmget(self._keys.pipeline(name), ["inUse", "disabled"])
        return [_head(found) for found in batch.execute()]

    def text(self, name: str, version: str) -> str | None:
        """The JSON of a version; None if it is not there or is not what its version says."""
        found = self._redis.hget(self._keys.pipeline(name), f"v:{version}")
        text = as_text(found)
        if text is None or hash_of(text)[:VERSION_CHARS] != version:
            return None
        return text

    def put_head(self, name: str, head: Head, text: str | None) -> None:
        """Write the head, and the JSON of the version in use, as one command."""
        fields: dict[Any, Any] = {
            "inUse": head.in_use or "",
            "disabled": "1" if head.disabled else "0",
        }
        if head.in_use and text is not None:
            fields[f"v:{head.in_use}"] = text
        self._redis.hset(self._keys.pipeline(name), mapping=fields)

    def put_text(self, name: str, version: str, text: str) -> None:
        self._redis.hset(self._keys.pipeline(name), f"v:{version}", text)

    def forget(self, name: str) -> None:
        self._redis.delete(self._keys.pipeline(name))


def as_text(found: Any) -> str | None:
    """What Redis answered, whether or not the client decodes answers."""
    return found.decode() if isinstance(found, bytes) else found


def _head(found: list[Any]) -> Head | None:
    in_use, disabled = as_text(found[0]), as_text(found[1])
    if disabled is None:
        return None
    return Head(in_use=in_use or None, disabled=disabled == "1")
