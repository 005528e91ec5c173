"""The node groups as of a moment ago, for code that asks often."""

from __future__ import annotations

import logging
import time

from datp_tasks.live.redis_errors import RedisError
from datp_tasks.model.node_groups import NodeGroup
from datp_tasks.record.groups import GroupStore
from datp_tasks.record.sql_errors import SQLAlchemyError

log = logging.getLogger("datp.groups")


class GroupBook:
    """Reads them every while; an outage keeps the last answer."""

    def __init__(self, store: GroupStore, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._known: dict[str, NodeGroup] = {}
        self._read_s = float("-inf")

    def groups(self) -> dict[str, NodeGroup]:
        if time.monotonic() - self._read_s >= self._every_s:
            self._read_s = time.monotonic()
            try:
                self._known = self._store.current()
            except (RedisError, SQLAlchemyError) as error:
                log.warning("node groups stay as they were: %s", error)
        return self._known

    def holders(self, role: str) -> list[str]:
        """The groups that have a role and are not stopped."""
        return [
            name
            for name, group in self.groups().items()
            if role in group.roles and not group.is_stopped
        ]
