"""Looking for a text wherever something rests: every table, and every key of Redis."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from datp_tasks.record.tables import metadata
from datp_tasks.testing import Kit


def places_with(kit: Kit, wanted: str) -> list[str]:
    """Tables and keys in which the text is found."""
    return [*_tables_with(kit, wanted), *_keys_with(kit, wanted)]


def _tables_with(kit: Kit, wanted: str) -> list[str]:
    found = []
    with kit.connections.engine.connect() as sql:
        for table in metadata.sorted_tables:
            rows = sql.execute(text(f"SELECT t::text FROM {table.name} t")).scalars()
            if any(wanted in row for row in rows):
                found.append(table.name)
    return found


def _keys_with(kit: Kit, wanted: str) -> list[str]:
    redis: Any = kit.connections.redis
    found = []
    for key in redis.scan_iter(match=f"{kit.settings.key_prefix}*", count=1_000):
        if wanted in str(_content(redis, key)):
            found.append(str(key))
    return found


def _content(redis: Any, key: str) -> Any:
    match redis.type(key):
        case "hash":
            return redis.hgetall(key)
        case "list":
            return redis.lrange(key, 0, -1)
        case "zset":
            return redis.zrange(key, 0, -1)
        case "set":
            return redis.smembers(key)
        case "stream":
            return redis.xrange(key)
        case "string":
            return redis.get(key)
    return ""
