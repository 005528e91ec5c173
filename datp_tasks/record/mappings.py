"""Mappings in SQL: their versions, and which of them is in use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.errors import MappingUnknown
from datp_tasks.model.actor import Actor
from datp_tasks.record.operator_actions import add_action
from datp_tasks.record.queries import Queries

VERSION_OR_PREFIX = re.compile(r"[0-9a-f]{1,16}")


class Query(Queries, topic="mappings"):
    head: str
    list_mappings: str
    versions: str
    in_use: str
    add_mapping: str
    add_version: str
    commit_version: str
    use_version: str


class MappingRecord:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def rows(self) -> Iterator[MappingRows]:
        """Everything that is written inside is one commit."""
        with self._engine.begin() as connection:
            yield MappingRows(connection)


class MappingRows:
    """The rows of mappings inside one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list_mappings(self) -> list[dict[str, Any]]:
        rows = self._connection.exec_driver_sql(Query.list_mappings)
        return [dict(row) for row in rows.mappings()]

    def head(self, name: str) -> Any:
        row = self._connection.exec_driver_sql(Query.head, {"name": name}).first()
        if row is None:
            raise MappingUnknown(
                f"There is no mapping {name!r}. `datp mappings list` shows what there is."
            )
        return row

    def versions(self, name: str, prefix: str = "") -> list[Any]:
        """The newest first."""
        values = {"name": name, "prefix": prefix}
        return list(self._connection.exec_driver_sql(Query.versions, values))

    def find_version(self, name: str, given: str) -> Any:
        """The row of the version that the given characters are the start of."""
        self.head(name)
        found = self.versions(name, given) if VERSION_OR_PREFIX.fullmatch(given) else []
        if len(found) != 1:
            what = "has several versions that begin with" if found else "has no version"
            raise MappingUnknown(
                f"Mapping {name} {what} {given!r}. `datp mappings show {name}` lists them."
            )
        return found[0]

    def latest_draft(self, name: str) -> Any:
        self.head(name)
        drafts = [row for row in self.versions(name) if row.state == "draft"]
        if not drafts:
            raise MappingUnknown(f"Mapping {name} has no draft to commit.")
        return drafts[0]

    def in_use(self, names: Iterable[str]) -> list[Any]:
        """The content of each of these that has a version in use."""
        return list(self._connection.exec_driver_sql(Query.in_use, {"names": list(names)}))

    def add_version(self, *, name: str, version: str, content_hash: str, definition: str) -> bool:
        """Add a version as a draft; False if it is there, and stays as it is."""
        self._connection.exec_driver_sql(Query.add_mapping, {"name": name})
        values = {
            "name": name,
            "version": version,
            "content_hash": content_hash,
            "definition": definition,
        }
        row = self._connection.exec_driver_sql(Query.add_version, values).first()
        return row is not None and row.is_new

    def commit_version(self, name: str, version: str, comment: str) -> bool:
        """Mark a draft as committed; False if it was no draft any more."""
        values = {"name": name, "version": version, "comment": comment}
        return self._connection.exec_driver_sql(Query.commit_version, values).rowcount == 1

    def use_version(self, name: str, version: str) -> None:
        values = {"name": name, "version": version}
        self._connection.exec_driver_sql(Query.use_version, values)

    def audit(
        self, *, actor: Actor, action: str, name: str, version: str, reason: str | None = None
    ) -> None:
        """Write down what an operator did, in the commit that does it."""
        add_action(
            self._connection,
            actor=actor,
            action=action,
            subject=name,
            reason=reason,
            details={"version": version},
        )
