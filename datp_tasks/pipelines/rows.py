"""The SQL of the store: small functions on one connection, each part of a caller's transaction."""

from __future__ import annotations

import logging
import re
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as insert_or_skip

from datp_tasks.errors import PipelineUnknown, VersionMismatch
from datp_tasks.model.pipeline import VERSION_CHARS, PipelineDefinition
from datp_tasks.pipelines.records import Applied, is_intact
from datp_tasks.record.tables import operator_action, pipeline, pipeline_version

VERSION_OR_PREFIX = re.compile(rf"[0-9a-f]{{1,{VERSION_CHARS}}}")

log = logging.getLogger(__name__)


def head(connection: Connection, name: str, *, lock: bool = False) -> Row[Any]:
    """The row of a pipeline. A lock keeps its head as it is until this transaction ends."""
    query = select(pipeline).where(pipeline.c.name == name)
    if lock:
        # With key_share, new versions can still refer to the row meanwhile.
        query = query.with_for_update(key_share=True)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise PipelineUnknown(
            f"There is no pipeline {name!r}. `datp pipelines list` shows what there is."
        )
    return row


def version_rows(connection: Connection, name: str) -> list[Row[Any]]:
    """Every version of a pipeline, the newest first."""
    return list(connection.execute(_newest_first(name)).all())


def find_version(connection: Connection, name: str, given: str) -> Row[Any]:
    """The row of the version that the given characters are the start of."""
    rows: list[Row[Any]] = []
    if VERSION_OR_PREFIX.fullmatch(given):
        query = _newest_first(name).where(pipeline_version.c.version.startswith(given))
        rows = list(connection.execute(query.limit(3)).all())
    if len(rows) == 1:
        return rows[0]
    head(connection, name)
    if not rows:
        raise PipelineUnknown(
            f"Pipeline {name} has no version {given!r}. `datp pipelines show {name}` lists them."
        )
    some = ", ".join(row.version for row in rows)
    raise PipelineUnknown(f"Version {given!r} of pipeline {name} could be {some}; give more of it.")


def newest_version(connection: Connection, name: str) -> Row[Any]:
    head(connection, name)
    return connection.execute(_newest_first(name).limit(1)).one()


def latest_draft(connection: Connection, name: str) -> Row[Any]:
    head(connection, name)
    query = _newest_first(name).where(pipeline_version.c.state == "draft").limit(1)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise PipelineUnknown(
            f"Pipeline {name} has no draft to commit. `datp pipelines apply` makes one from a file."
        )
    return row


def insert_version(connection: Connection, definition: PipelineDefinition) -> Applied:
    """Add a version as a draft; one that is there stays as it is."""
    name, version = definition.name, definition.version
    content = {"content_hash": definition.content_hash, "definition": definition.to_json()}
    connection.execute(insert_or_skip(pipeline).values(name=name).on_conflict_do_nothing())
    added = connection.execute(
        insert_or_skip(pipeline_version)
        .values(name=name, version=version, state="draft", **content)
        .on_conflict_do_nothing()
        .returning(pipeline_version.c.version)
    ).one_or_none()
    row = find_version(connection, name, version)
    if (row.content_hash, row.definition) != tuple(content.values()):
        _restore(connection, row, content)
    return Applied(name=name, version=version, is_new=added is not None, state=row.state)


def set_version(connection: Connection, name: str, version: str, **values: Any) -> None:
    connection.execute(
        update(pipeline_version)
        .where(pipeline_version.c.name == name, pipeline_version.c.version == version)
        .values(**values)
    )


def commit_version(connection: Connection, name: str, version: str, comment: str) -> bool:
    """Mark a draft as committed; False if it was no draft any more."""
    done = connection.execute(
        update(pipeline_version)
        .where(
            pipeline_version.c.name == name,
            pipeline_version.c.version == version,
            pipeline_version.c.state == "draft",
        )
        .values(state="committed", comment=comment, committed_at=func.now())
    )
    return done.rowcount == 1


def set_head(connection: Connection, name: str, **values: Any) -> None:
    head(connection, name, lock=True)
    connection.execute(
        update(pipeline).where(pipeline.c.name == name).values(updated_at=func.now(), **values)
    )


def audit(
    connection: Connection,
    *,
    actor: str,
    action: str,
    subject: str,
    reason: str | None = None,
    details: dict[str, Any] | None = None,
) -> None:
    """Write down what an operator did, in the same commit as the deed."""
    connection.execute(
        insert(operator_action).values(
            actor=actor, action=action, subject=subject, reason=reason, details=details
        )
    )


def _newest_first(name: str) -> Select[Any]:
    return (
        select(pipeline_version)
        .where(pipeline_version.c.name == name)
        .order_by(pipeline_version.c.created_at.desc(), pipeline_version.c.version)
    )


def _restore(connection: Connection, row: Row[Any], content: dict[str, str]) -> None:
    """Give an altered row its content back: what a version must hold is fixed by its name."""
    if is_intact(row.definition, content_hash=row.content_hash, version=row.version):
        raise VersionMismatch(
            f"Version {row.version} of pipeline {row.name} is taken by another content whose hash "
            f"starts alike. Change anything, such as the description, and apply it again."
        )
    log.warning("Pipeline %s version %s was altered; it is restored", row.name, row.version)
    set_version(connection, row.name, row.version, **content)
