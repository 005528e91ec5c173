"""Pipelines in SQL: their versions, and which of them is in use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.errors import PipelineUnknown
from datp_tasks.model.actor import Actor
from datp_tasks.model.pipeline import VERSION_CHARS, PipelineDefinition
from datp_tasks.record.mappings import MappingRows
from datp_tasks.record.operator_actions import add_action
from datp_tasks.record.queries import Queries

VERSION_OR_PREFIX = re.compile(rf"[0-9a-f]{{1,{VERSION_CHARS}}}")


class Query(Queries, topic="pipelines"):
    head: str
    lock_head: str
    heads: str
    list_pipelines: str
    versions: str
    versions_like: str
    newest_version: str
    latest_draft: str
    add_pipeline: str
    add_version: str
    restore_content: str
    renew_draft: str
    commit_version: str
    use_version: str
    disable: str
    was_used: str
    delete_version: str
    delete_empty: str


class PipelineRecord:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def reading(self) -> Iterator[PipelineRows]:
        with self._engine.connect() as connection:
            yield PipelineRows(connection)

    @contextmanager
    def writing(self) -> Iterator[PipelineRows]:
        """Everything that is written inside is one commit."""
        with self._engine.begin() as connection:
            yield PipelineRows(connection)

    def part_of(self, connection: Connection) -> PipelineRows:
        """What is written becomes part of another transaction."""
        return PipelineRows(connection)

    def list_pipelines(self) -> list[dict[str, Any]]:
        """Every pipeline by name, with the numbers of its versions and drafts."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.list_pipelines)
            return [dict(row) for row in rows.mappings()]

    def heads(self) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.exec_driver_sql(Query.heads))


class PipelineRows:
    """The rows of pipelines inside one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def head(self, name: str, *, lock: bool = False) -> Any:
        """The row of a pipeline. A lock keeps its head as it is until this transaction ends."""
        query = Query.lock_head if lock else Query.head
        row = self._first(query, name=name)
        if row is None:
            raise PipelineUnknown(
                f"There is no pipeline {name!r}. `datp pipelines list` shows what there is."
            )
        return row

    def versions(self, name: str) -> list[Any]:
        """Every version of a pipeline, the newest first."""
        return list(self._connection.exec_driver_sql(Query.versions, {"name": name}))

    def find_version(self, name: str, given: str) -> Any:
        """The row of the version that the given characters are the start of."""
        rows: list[Any] = []
        if VERSION_OR_PREFIX.fullmatch(given):
            values = {"name": name, "prefix": given}
            rows = list(self._connection.exec_driver_sql(Query.versions_like, values))
        if len(rows) == 1:
            return rows[0]
        self.head(name)
        if not rows:
            raise PipelineUnknown(
                f"Pipeline {name} has no version {given!r}. "
                f"`datp pipelines show {name}` lists them."
            )
        some = ", ".join(row.version for row in rows)
        raise PipelineUnknown(
            f"Version {given!r} of pipeline {name} could be {some}; give more of it."
        )

    def newest_version(self, name: str) -> Any:
        self.head(name)
        return self._connection.exec_driver_sql(Query.newest_version, {"name": name}).one()

    def latest_draft(self, name: str) -> Any:
        self.head(name)
        row = self._first(Query.latest_draft, name=name)
        if row is None:
            raise PipelineUnknown(
                f"Pipeline {name} has no draft to commit. "
                "`datp pipelines apply` makes one from a file."
            )
        return row

    def add_version(self, definition: PipelineDefinition) -> bool:
        """Add a version as a draft; False if it is there, and stays as it is."""
        self._change(Query.add_pipeline, name=definition.name)
        return self._first(Query.add_version, **_content(definition)) is not None

    def restore_content(self, definition: PipelineDefinition) -> None:
        self._change(Query.restore_content, **_content(definition))

    def renew_draft(self, name: str, version: str) -> None:
        self._change(Query.renew_draft, name=name, version=version)

    def commit_version(self, name: str, version: str, comment: str) -> bool:
        """Mark a draft as committed; False if it was no draft any more."""
        values = {"name": name, "version": version, "comment": comment}
        return self._change(Query.commit_version, **values) == 1

    def use_version(self, name: str, version: str) -> None:
        self.head(name, lock=True)
        self._change(Query.use_version, name=name, version=version)

    def disable(self, name: str) -> None:
        self.head(name, lock=True)
        self._change(Query.disable, name=name)

    def was_used(self, name: str, version: str) -> bool:
        """Whether transactions may have pinned it; the audit keeps what was put into use."""
        return self._first(Query.was_used, name=name, version=version) is not None

    def delete_version(self, name: str, version: str) -> bool:
        """Remove a draft, and the pipeline with its last version; False if it is no draft."""
        self.head(name, lock=True)
        if self._change(Query.delete_version, name=name, version=version) != 1:
            return False
        self._change(Query.delete_empty, name=name)
        return True

    @property
    def mappings(self) -> MappingRows:
        """The mappings, in the same transaction."""
        return MappingRows(self._connection)

    def audit(
        self,
        *,
        actor: Actor,
        action: str,
        name: str,
        version: str | None,
        reason: str | None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Write down what an operator did, in the commit that does it."""
        found = {**({"version": version} if version else {}), **(details or {})}
        add_action(
            self._connection,
            actor=actor,
            action=action,
            subject=name,
            reason=reason,
            details=found or None,
        )

    def _first(self, query: str, **values: Any) -> Any:
        return self._connection.exec_driver_sql(query, values).first()

    def _change(self, query: str, **values: Any) -> int:
        return self._connection.exec_driver_sql(query, values).rowcount


def _content(definition: PipelineDefinition) -> dict[str, str]:
    return {
        "name": definition.name,
        "version": definition.version,
        "content_hash": definition.content_hash,
        "definition": definition.to_json(),
    }
