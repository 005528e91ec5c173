"""Node groups: what operators decided about them. SQL is the record, Redis holds a copy.

A value that was never set leaves things as they are without it: concurrency as a worker was
started, pauses and batches as the settings say. A role that no group was given stays with the
group that beat's messages go to.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from datp_tasks.clock import Clock
from datp_tasks.errors import GroupInvalid
from datp_tasks.live.keys import Keys
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.queries import Queries
from datp_tasks.settings import GROUP_NAME

log = logging.getLogger("datp.groups")


class Query(Queries, topic="groups"):
    all_groups: str
    set_group: str
    lock_groups: str


@dataclass(frozen=True, slots=True)
class Limit:
    """One value of a group: its column, and what it may be."""

    column: str
    high: int
    meaning: str
    #: The setting that it takes the place of, where the group does a job.
    setting: str = ""


#: By the names of the seed, which Redis, the API and the command line use.
LIMITS = {
    "concurrency": Limit("concurrency", 1_000, "processes of each worker; 0 stops the group"),
    "archiveBatchSize": Limit(
        "archive_batch_size", 10_000, "above 0: the group archives", "archiver_batch_max"
    ),
    "webhookWorkers": Limit(
        "webhook_workers", 1_000, "above 0: the group sends webhooks", "webhook_workers"
    ),
    "wakeupBatchSize": Limit(
        "wakeup_batch_size", 100_000, "above 0: the group wakes sleepers", "sleeper_batch_max"
    ),
    "ledger": Limit("ledger", 1, "1: the group claims services and asks ledgers"),
    "webhookPause": Limit("webhook_pause_ms", 60_000, "milliseconds", "webhook_pause_ms"),
    "webhookPauseBusy": Limit(
        "webhook_pause_busy_ms", 60_000, "milliseconds, all workers busy", "webhook_pause_busy_ms"
    ),
    "webhookPauseIdle": Limit(
        "webhook_pause_idle_ms", 60_000, "milliseconds, nothing to send", "webhook_pause_idle_ms"
    ),
}
#: Role -> the value that gives it.
ROLES = {
    "archiving": "archiveBatchSize",
    "webhooks": "webhookWorkers",
    "wakeup": "wakeupBatchSize",
    "ledger": "ledger",
}


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """One group; `values` holds only what was set."""

    name: str
    values: Mapping[str, int]

    @property
    def concurrency(self) -> int | None:
        return self.values.get("concurrency")

    @property
    def is_stopped(self) -> bool:
        return self.concurrency == 0

    @property
    def roles(self) -> list[str]:
        return [role for role, value in ROLES.items() if self.values.get(value, 0) > 0]

    @property
    def overrides(self) -> dict[str, int]:
        """Settings that jobs have where this group does them; a 0 only takes a role away."""
        giving = set(ROLES.values())
        return {
            LIMITS[name].setting: value
            for name, value in self.values.items()
            if LIMITS[name].setting and (value > 0 or name not in giving)
        }


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


class GroupStore:
    def __init__(self, engine: Engine, redis: Redis, keys: Keys, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._copy = GroupCopy(redis, keys)

    def list(self) -> dict[str, NodeGroup]:
        """The groups that something was decided about, from SQL."""
        with self._engine.connect() as connection:
            return _all(connection)

    def set(
        self,
        name: str,
        changes: Mapping[str, int | None],
        *,
        actor: str,
        reason: str | None = None,
        maintenance_group: str = "",
    ) -> NodeGroup:
        """Change some values of a group (None: back to the default) and note who did it."""
        _check(name, changes, maintenance_group)
        with self._engine.begin() as connection:
            # One after another: each change builds on the values that the one before left.
            connection.exec_driver_sql(Query.lock_groups)
            before = _all(connection).get(name, NodeGroup(name, {}))
            merged = {**before.values, **changes}
            after = replace(before, values={k: v for k, v in merged.items() if v is not None})
            now = self._clock.now()
            columns = {limit.column: after.values.get(key) for key, limit in LIMITS.items()}
            connection.exec_driver_sql(Query.set_group, {"name": name, **columns, "now": now})
            note_action(
                connection,
                actor=actor,
                action="set group",
                subject=name,
                reason=reason,
                details={"before": dict(before.values), "after": dict(after.values)},
                now=now,
            )
        try:
            self.refresh()
        except RedisError as error:
            log.warning("the copy of group %s in Redis is renewed later: %s", name, error)
        return after

    def refresh(self) -> dict[str, NodeGroup]:
        """Write what SQL has to Redis."""
        groups = self.list()
        self._copy.write(groups)
        return groups

    def current(self) -> dict[str, NodeGroup]:
        """From Redis, or from SQL where Redis has lost its copy."""
        found = self._copy.read()
        return self.refresh() if found is None else found


class GroupBook:
    """The groups as of a moment ago, for whoever asks often; an outage keeps the last answer."""

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


def _all(connection: Connection) -> dict[str, NodeGroup]:
    return {row.name: _from_row(row) for row in connection.exec_driver_sql(Query.all_groups)}


def _from_row(row: Any) -> NodeGroup:
    found = {name: getattr(row, limit.column) for name, limit in LIMITS.items()}
    return NodeGroup(row.name, {name: value for name, value in found.items() if value is not None})


def _check(name: str, changes: Mapping[str, int | None], maintenance_group: str) -> None:
    if not GROUP_NAME.fullmatch(name):
        raise GroupInvalid(f"{name!r} is not the name of a node group: {GROUP_NAME.pattern}")
    for key, value in changes.items():
        limit = LIMITS.get(key)
        if limit is None:
            raise GroupInvalid(f"a node group has no {key!r}; it has {', '.join(LIMITS)}")
        if value is not None and not 0 <= value <= limit.high:
            raise GroupInvalid(f"{key} must be from 0 to {limit.high}, was {value}")
    if name == maintenance_group and changes.get("concurrency") == 0:
        raise GroupInvalid(
            f"{name} takes the messages of beat, so nothing would be woken, archived or repaired "
            "while it is stopped. Stop another group, or give maintenance a group of its own "
            "(DATP_MAINTENANCE_GROUP)."
        )
