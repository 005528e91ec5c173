"""The copy of the node groups in Redis: one hash per group, `nodeGroupH:<name>`, and their names.

SQL is the record. Workers that may not connect to SQL, and those that look often, read the copy.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from datp_tasks.live.keys import Keys
from datp_tasks.model.node_groups import LIMITS, NodeGroup

log = logging.getLogger("datp.groups")


class GroupCopy:
    """What Redis has of the groups."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._names_key = keys.outside("nodeGroups")

    def write(self, groups: Mapping[str, NodeGroup]) -> None:
        for group in groups.values():
            key = self._keys.outside(f"nodeGroupH:{group.name}")
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.delete(key)
            fields: dict[Any, Any] = {"name": group.name, **group.values}
            pipeline.hset(key, mapping=fields)
            pipeline.execute()
        self._redis.set(self._names_key, json.dumps(sorted(groups)))

    def write_or_later(self, groups: Mapping[str, NodeGroup]) -> None:
        """The same, without an error if Redis is unavailable: the copy is renewed later."""
        try:
            self.write(groups)
        except RedisError as error:
            log.warning("the copy of the groups in Redis is renewed later: %s", error)

    def read(self) -> dict[str, NodeGroup] | None:
        """None if Redis has lost its copy, which does not mean that nothing is set."""
        names = self._redis.get(self._names_key)
        if names is None:
            return None
        found: dict[str, NodeGroup] = {}
        for name in json.loads(str(names)):
            fields = self._redis.hgetall(self._keys.outside(f"nodeGroupH:{name}"))
            if not fields:
                return None
            values = {key: int(fields[key]) for key in LIMITS if key in fields}
            found[name] = NodeGroup(name, values)
        return found
