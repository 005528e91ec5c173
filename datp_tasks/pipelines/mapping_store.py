"""Mappings that pipelines share: versions in SQL, and which of them is in use.

A pipeline that names a mapping gets its content when it is applied, as a lock file would: the
version of the pipeline covers it, and a transaction keeps the mapping it started with. When
another version of a mapping is put into use, each pipeline in use that names it gets a new version.
"""

from __future__ import annotations

import builtins
import copy
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from datp_tasks.errors import ApprovalNeeded, PipelineInvalid, VersionMismatch
from datp_tasks.model.actor import Actor
from datp_tasks.model.mapping import MappingDefinition
from datp_tasks.model.pipeline import VERSION_CHARS, PipelineDefinition, hash_of
from datp_tasks.pipelines.exchange import checked_comment
from datp_tasks.record.database import Engine
from datp_tasks.record.mappings import MappingRecord, MappingRows

if TYPE_CHECKING:
    from datp_tasks.pipelines.version_store import PipelineStore


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingInfo:
    """One mapping in the list."""

    name: str
    version_in_use: str | None
    versions: int
    drafts: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMapping:
    """One version of a mapping."""

    definition: MappingDefinition
    version: str
    state: str
    comment: str | None
    created_at: datetime
    in_use: bool


@dataclass(frozen=True, slots=True)
class Republished:
    """A pipeline that names the mapping, and its new version."""

    pipeline: str
    version: str
    #: The request that another person must approve before it is in use; None: it is.
    approval_id: int | None = None


class MappingStore:
    """Wherever a version is asked for, the start of it will do if it is unique."""

    def __init__(self, engine: Engine, pipelines: PipelineStore) -> None:
        self._record = MappingRecord(engine)
        self._pipelines = pipelines

    def acting(self, actor: Actor) -> Self:
        """The same, in the name of an actor: the audit says who did it."""
        other = copy.copy(self)
        other._pipelines = self._pipelines.acting(actor)
        return other

    def apply(self, definition: MappingDefinition) -> tuple[str, bool]:
        """Put a version into the store as a draft: the version, and whether it is new."""
        text = definition.to_json()
        content_hash = hash_of(text)
        version = content_hash[:VERSION_CHARS]
        with self._record.rows() as rows:
            is_new = rows.add_version(
                name=definition.name, version=version, content_hash=content_hash, definition=text
            )
            _opened(rows.find_version(definition.name, version))
            if is_new:
                self._audit(rows, "mapping.apply", definition.name, version)
        return version, is_new

    def commit(self, name: str, version: str | None = None, comment: str = "") -> str:
        """Mark a version (else the latest draft) as committed; its version."""
        comment = checked_comment(comment, source=name)
        with self._record.rows() as rows:
            row = rows.find_version(name, version) if version else rows.latest_draft(name)
            if rows.commit_version(name, row.version, comment):
                self._audit(rows, "mapping.commit", name, row.version, comment)
        return str(row.version)

    def use(self, name: str, version: str, *, reason: str = "") -> builtins.list[Republished]:
        """Pipelines get this version from now on; those in use that name it, new versions.

        Each of these passes the gate of `pipeline.use`. Repeating it does what was left.
        """
        with self._record.rows() as rows:
            row = rows.find_version(name, version)
            _opened(row)
            if rows.head(name).version_in_use != row.version:
                rows.use_version(name, row.version)
                self._audit(rows, "mapping.use", name, row.version, reason or None)
        why = reason or f"mapping {name} {row.version}"
        return [
            self._republish(definition, why)
            for definition in self._naming(name)
            if definition.version != self._current(definition).version
        ]

    def list(self) -> tuple[MappingInfo, ...]:
        with self._record.rows() as rows:
            return tuple(MappingInfo(**row) for row in rows.list_mappings())

    def show(self, name: str, version: str | None = None) -> StoredMapping:
        """One version: the given one, else the one in use, else the newest."""
        with self._record.rows() as rows:
            in_use = rows.head(name).version_in_use
            wanted = version or in_use
            row = rows.find_version(name, wanted) if wanted else rows.versions(name)[0]
        return _stored(row, in_use)

    def versions(self, name: str) -> tuple[StoredMapping, ...]:
        """Every version, the newest first."""
        with self._record.rows() as rows:
            in_use = rows.head(name).version_in_use
            return tuple(_stored(row, in_use) for row in rows.versions(name))

    def _naming(self, name: str) -> builtins.list[PipelineDefinition]:
        """The pipelines in use that name the mapping."""
        found = [
            self._pipelines.load(each.name, each.version_in_use)
            for each in self._pipelines.list()
            if each.version_in_use
        ]
        return [definition for definition in found if name in definition.mapping_names]

    def _current(self, definition: PipelineDefinition) -> PipelineDefinition:
        with self._record.rows() as rows:
            return filled_in(rows, definition)

    def _republish(self, definition: PipelineDefinition, why: str) -> Republished:
        applied = self._pipelines.apply(definition)
        if applied.state == "draft":
            self._pipelines.commit(applied.name, applied.version, comment=why)
        try:
            self._pipelines.use(applied.name, applied.version, reason=why)
        except ApprovalNeeded as needed:
            return Republished(applied.name, applied.version, needed.approval_id)
        return Republished(applied.name, applied.version)

    def _audit(
        self, rows: MappingRows, action: str, name: str, version: str, reason: str | None = None
    ) -> None:
        actor = self._pipelines.actor
        rows.audit(actor=actor, action=action, name=name, version=version, reason=reason)


def filled_in(rows: MappingRows, definition: PipelineDefinition) -> PipelineDefinition:
    """The pipeline with what its mappings say that are in use; PipelineInvalid if one is not."""
    names = definition.mapping_names
    if not names:
        return definition
    found = {
        row.name: {"mappingVersion": row.version, **_opened(row).content()}
        for row in rows.in_use(names)
    }
    missing = [name for name in names if name not in found]
    if missing:
        raise PipelineInvalid(
            [
                f"{definition.name}: mapping {name}: has no version in use; "
                f"`datp mappings apply FILE --use` puts one into use"
                for name in missing
            ]
        )
    return definition.with_mappings(found)


def _stored(row: Any, in_use: str | None) -> StoredMapping:
    return StoredMapping(
        definition=_opened(row),
        version=row.version,
        state=row.state,
        comment=row.comment,
        created_at=row.created_at,
        in_use=row.version == in_use,
    )


def _opened(row: Any) -> MappingDefinition:
    """What a row says, if it is what was stored."""
    if hash_of(row.definition) != row.content_hash or row.content_hash[:VERSION_CHARS] != (
        row.version
    ):
        raise VersionMismatch(
            f"Version {row.version} of mapping {row.name} was altered in the database: its content "
            f"does not match its hash. Apply it again from its file under another description."
        )
    return MappingDefinition.from_mapping(json.loads(row.definition))
