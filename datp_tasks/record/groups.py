"""Node groups: what operators decided about them. SQL is the record, Redis holds a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.errors import SubjectMoved
from datp_tasks.model.actor import Actor
from datp_tasks.model.node_groups import LIMITS, NodeGroup, check_changes
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.queries import Queries

__all__ = ["LIMITS", "GroupMirror", "GroupStore", "NodeGroup"]


class Query(Queries, topic="groups"):
    all_groups: str
    set_group: str
    lock_groups: str


class GroupMirror(Protocol):
    """What another store has of the groups."""

    def write(self, groups: Mapping[str, NodeGroup]) -> None: ...

    def write_or_later(self, groups: Mapping[str, NodeGroup]) -> None:
        """Without an error if that store is unavailable."""

    def read(self) -> dict[str, NodeGroup] | None:
        """None if it has lost its copy."""


class GroupStore:
    def __init__(self, engine: Engine, copy: GroupMirror, clock: Clock) -> None:
        self._engine = engine
        self._copy = copy
        self._clock = clock

    def list(self) -> dict[str, NodeGroup]:
        """The groups that something was decided about, from SQL."""
        with self._engine.connect() as connection:
            return _all(connection)

    def set(
        self,
        name: str,
        changes: Mapping[str, int | None],
        *,
        actor: Actor,
        reason: str | None = None,
        maintenance_group: str = "",
        seen: Mapping[str, int | None] | None = None,
    ) -> NodeGroup:
        """Change some values of a group (None: back to the default) and note who did it.

        With `seen`, SubjectMoved is raised if a value is not as the caller has seen it.
        """
        check_changes(name, changes, maintenance_group)
        with self._engine.begin() as connection:
            # One after another: each change builds on the values that the one before left.
            connection.exec_driver_sql(Query.lock_groups)
            before = _all(connection).get(name, NodeGroup(name, {}))
            moved = [key for key, value in (seen or {}).items() if before.values.get(key) != value]
            if moved:
                raise SubjectMoved(f"{', '.join(moved)} of the group {name}: changed meanwhile")
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
        self._copy.write_or_later(self.list())
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


def _all(connection: Connection) -> dict[str, NodeGroup]:
    return {row.name: _from_row(row) for row in connection.exec_driver_sql(Query.all_groups)}


def _from_row(row: Any) -> NodeGroup:
    found = {name: getattr(row, limit.column) for name, limit in LIMITS.items()}
    return NodeGroup(row.name, {name: value for name, value in found.items() if value is not None})
