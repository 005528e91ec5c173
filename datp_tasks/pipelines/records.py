"""What the store says about pipelines and their versions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from datp_tasks.errors import PipelineDisabled, PipelineUnknown, VersionMismatch
from datp_tasks.model.pipeline import VERSION_CHARS, PipelineDefinition, hash_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A version that was put into the store."""

    name: str
    version: str
    #: False: the same content was there before.
    is_new: bool
    #: draft or committed
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInfo:
    """One pipeline in the list."""

    name: str
    version_in_use: str | None
    disabled: bool
    versions: int
    drafts: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionInfo:
    """One version of a pipeline, without its content."""

    name: str
    version: str
    content_hash: str
    state: str
    comment: str | None
    created_at: datetime
    committed_at: datetime | None
    in_use: bool

    @classmethod
    def from_row(cls, row: Any, *, version_in_use: str | None) -> Self:
        return cls(
            name=row.name,
            version=row.version,
            content_hash=row.content_hash,
            state=row.state,
            comment=row.comment,
            created_at=row.created_at,
            committed_at=row.committed_at,
            in_use=row.version == version_in_use,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """One version of a pipeline with its content."""

    info: VersionInfo
    definition: PipelineDefinition


def is_intact(text: str, *, content_hash: str, version: str) -> bool:
    """Whether the stored text is what was stored: its hash says so, and its version too."""
    return hash_of(text) == content_hash and content_hash[:VERSION_CHARS] == version


def sealed_child(
    definition: PipelineDefinition, current: Callable[[str], PipelineDefinition]
) -> str | None:
    """The name of a sealed pipeline that it may call, itself or through others; None: there is
    none."""
    seen, names = {definition.name}, list(definition.calls)
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        # One that cannot be called now holds nothing.
        with suppress(PipelineUnknown, PipelineDisabled):
            child = current(name)
            if child.sealed:
                return name
            names += child.calls
    return None


def verified(row: Any) -> PipelineDefinition:
    """The definition in a row of the store, or VersionMismatch if it was altered."""
    if is_intact(row.definition, content_hash=row.content_hash, version=row.version):
        definition = PipelineDefinition.from_json(row.definition)
        if definition.name == row.name:
            return definition
    raise VersionMismatch(
        f"Version {row.version} of pipeline {row.name} was altered in the database: its content "
        f"does not match its hash. Import it again from an export, or apply it from its file."
    )
