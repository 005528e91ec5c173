"""The record of all pipelines: versions in SQL, and which of them is in use.

A version is a draft until it is committed with a comment; any version can be put into use. Each
change is committed in SQL first and then copied to Redis. If the copy fails or the process dies
in between, the periodic `refresh_all` brings Redis up to date.
"""

from __future__ import annotations

import copy
import getpass
import logging
import os
from dataclasses import replace
from typing import Any, Self

from datp_tasks.errors import (
    PipelineInvalid,
    PipelineUnknown,
    SubjectMoved,
    VersionKept,
    VersionMismatch,
)
from datp_tasks.live.connect import Redis
from datp_tasks.live.keys import Keys
from datp_tasks.live.pipeline_cache import Head, PipelineCache
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.approval import ApprovalGate, Ask, Order
from datp_tasks.model.pipeline import PipelineDefinition, parse_definition
from datp_tasks.pipelines import exchange
from datp_tasks.pipelines.mapping_store import filled_in
from datp_tasks.pipelines.records import (
    Applied,
    PipelineInfo,
    StoredVersion,
    VersionInfo,
    is_intact,
    sealed_child,
    verified,
)
from datp_tasks.record.database import Connection, Engine
from datp_tasks.record.pipelines import PipelineRecord, PipelineRows

log = logging.getLogger(__name__)

#: What may need a second person.
USE = "pipeline.use"


class PipelineStore:
    """Wherever a version is asked for, the start of it will do if it is unique."""

    def __init__(
        self,
        engine: Engine,
        redis: Redis,
        keys: Keys,
        *,
        actor: Actor | None = None,
        gate: ApprovalGate,
    ) -> None:
        self.keys = keys
        self._record = PipelineRecord(engine)
        self._cache = PipelineCache(redis, keys)
        self._gate = gate
        self.actor = actor or Actor(name=_os_user(), role=Role.ADMIN)

    def acting(self, actor: Actor) -> Self:
        """The same, in the name of an actor: the audit says who did it."""
        other = copy.copy(self)
        other.actor = actor
        return other

    def apply(self, definition: PipelineDefinition) -> Applied:
        """Put a version into the store as a draft; the same content again changes nothing.

        Shared mappings that it names become a part of it, as they are in use now.
        """
        with self._record.writing() as rows:
            definition = filled_in(rows.mappings, definition)
            name, version = definition.name, definition.version
            applied = _insert(rows, definition)
            if not applied.is_new and applied.state == "draft":
                # It is the latest draft again, which is what `commit` takes by itself.
                rows.renew_draft(name, version)
            if applied.is_new:
                _check_shows_nothing_sealed(rows, definition)
                self._audit(rows, "pipeline.apply", name, version)
        self._copy_to_redis(name)
        return applied

    def commit(self, name: str, version: str | None = None, comment: str = "") -> VersionInfo:
        """Mark a version (else the latest draft) as committed; a committed one stays as it is."""
        comment = exchange.checked_comment(comment, source=name)
        with self._record.writing() as rows:
            row = rows.find_version(name, version) if version else rows.latest_draft(name)
            verified(row)
            if rows.commit_version(name, row.version, comment):
                self._audit(rows, "pipeline.commit", name, row.version, reason=comment)
        self._copy_to_redis(name)
        return self.show(name, row.version).info

    def clone(self, name: str, new_name: str, version: str | None = None) -> Applied:
        """The same under another name, as a draft: the given version, else the one in use."""
        found = self.show(name, version).definition
        definition = parse_definition(found.to_mapping() | {"pipeline": new_name}, source="clone")
        with self._record.writing() as rows:
            applied = _insert(rows, definition)
            if applied.is_new:
                reason = f"a clone of {name} {found.version}"
                self._audit(rows, "pipeline.clone", new_name, applied.version, reason=reason)
        self._copy_to_redis(new_name)
        return applied

    def delete(self, name: str, version: str) -> VersionInfo:
        """Remove a draft that was never in use; a pipeline goes with its last version."""
        with self._record.writing() as rows:
            in_use = rows.head(name, lock=True).version_in_use
            row = rows.find_version(name, version)
            if rows.was_used(name, row.version) or row.version == in_use:
                raise VersionKept(
                    f"Version {row.version} of pipeline {name} is or was in use; transactions may "
                    f"have pinned it, so it stays."
                )
            if not rows.delete_version(name, row.version):
                raise VersionKept(
                    f"Version {row.version} of pipeline {name} is committed; it stays, so that "
                    f"what was reviewed can be looked up."
                )
            self._audit(rows, "pipeline.delete", name, row.version)
        self._copy_to_redis(name)
        return VersionInfo.from_row(row, version_in_use=in_use)

    def use(
        self, name: str, version: str, *, reason: str = "", break_glass: bool = False
    ) -> VersionInfo:
        """New transactions get this version from now on, also if the pipeline was disabled.

        ApprovalNeeded is raised if the policy wants another person to agree.
        """
        with self._record.reading() as rows:
            head = rows.head(name)
            row = rows.find_version(name, version)
        verified(row)
        if head.version_in_use == row.version and not head.disabled:
            # Nothing changes: a start that puts its pipelines into use needs no second person.
            self._copy_to_redis(name)
            return VersionInfo.from_row(row, version_in_use=row.version)
        ask = Ask(
            action=USE,
            subject=name,
            params={"version": row.version},
            version=_head_version(head),
            reason=reason or f"version {row.version} instead of {head.version_in_use or 'none'}",
            pipeline=name,
        )
        self._gate.perform(self.actor, ask, break_glass=break_glass)
        return VersionInfo.from_row(row, version_in_use=row.version)

    # As an action of the gate.

    def decide(self, connection: Connection, order: Order) -> None:
        """All of it is in SQL."""
        name, version = order.subject, order.params["version"]
        rows = self._record.part_of(connection)
        found = _head_version(rows.head(name, lock=True))
        if order.approval is not None and found != order.version:
            raise SubjectMoved(f"pipeline {name} was at {order.version!r} and is at {found!r}")
        verified(rows.find_version(name, version))
        rows.use_version(name, version)
        rows.audit(
            actor=order.actor,
            action=USE,
            name=name,
            version=version,
            reason=order.reason,
            details=order.audit_details,
        )

    def carry_out(self, order: Order, _: str | None) -> str:
        """Redis follows now, else when the job comes by."""
        self._copy_to_redis(order.subject)
        return f"version {order.params['version']} is in use"

    def disable(self, name: str, *, reason: str | None = None) -> None:
        """Take no new transactions; those on their way go on."""
        with self._record.writing() as rows:
            rows.disable(name)
            self._audit(rows, "pipeline.disable", name, reason=reason)
        self._copy_to_redis(name)

    def list(self) -> tuple[PipelineInfo, ...]:
        """Every pipeline, by name."""
        return tuple(PipelineInfo(**row) for row in self._record.list_pipelines())

    def versions(self, name: str) -> tuple[VersionInfo, ...]:
        """Every version of a pipeline, the newest first."""
        with self._record.reading() as rows:
            in_use = rows.head(name).version_in_use
            found = rows.versions(name)
        return tuple(VersionInfo.from_row(row, version_in_use=in_use) for row in found)

    def show(self, name: str, version: str | None = None) -> StoredVersion:
        """One version with its content: the given one, else the one in use, else the newest."""
        with self._record.reading() as rows:
            in_use = rows.head(name).version_in_use
            wanted = version or in_use
            row = rows.find_version(name, wanted) if wanted else rows.newest_version(name)
        info = VersionInfo.from_row(row, version_in_use=in_use)
        return StoredVersion(info=info, definition=verified(row))

    def load(self, name: str, version: str) -> PipelineDefinition:
        """The content of a version, such as one that a transaction has pinned."""
        with self._record.reading() as rows:
            return verified(rows.find_version(name, version))

    def export(self, name: str, version: str | None = None) -> dict[str, Any]:
        """A document for `import_` elsewhere; it carries its hash."""
        return exchange.export_document(self.show(name, version))

    def import_(self, document: object) -> Applied:
        """Put an exported version into the store: committed, but not in use."""
        definition, comment = exchange.read_document(document)
        name, version = definition.name, definition.version
        with self._record.writing() as rows:
            applied = _insert(rows, definition)
            if rows.commit_version(name, version, comment):
                self._audit(rows, "pipeline.import", name, version, reason=comment)
        self._copy_to_redis(name)
        return replace(applied, state="committed")

    def diff(self, name: str, a: str, b: str) -> str:
        """What changed from version a to version b; empty if nothing did."""
        return exchange.diff_text(self.load(name, a), self.load(name, b))

    def head(self, name: str) -> Head | None:
        """What SQL says of a pipeline, for when Redis cannot be asked. None: it is unknown."""
        with self._record.reading() as rows:
            try:
                row = rows.head(name)
            except PipelineUnknown:
                return None
        return Head(in_use=row.version_in_use, disabled=row.disabled)

    def refresh(self, name: str) -> Head | None:
        """Copy what SQL says of a pipeline to Redis. None: SQL does not know it.

        The row stays locked until Redis has the copy. So of two at once, the later one both reads
        and writes later, and an old truth never comes to lie over a new one.
        """
        with self._record.writing() as rows:
            try:
                row = rows.head(name, lock=True)
            except PipelineUnknown:
                self._cache.forget(name)
                return None
            head = Head(in_use=row.version_in_use, disabled=row.disabled)
            text = _intact_text(rows, name, head.in_use)
            self._cache.put_head(name, head, text)
        return head

    def refresh_all(self) -> int:
        """Bring Redis up to date; returns how many pipelines were not. Safe twice at once.

        Cheap when nothing is wrong: one query and one round trip.
        """
        heads = self._record.heads()
        copies = self._cache.heads([row.name for row in heads])
        stale = [
            row.name
            for row, copy in zip(heads, copies, strict=True)
            if copy != Head(in_use=row.version_in_use, disabled=row.disabled)
        ]
        for name in stale:
            self.refresh(name)
        return len(stale)

    def _copy_to_redis(self, name: str) -> None:
        try:
            self.refresh(name)
        except RedisError as error:
            log.warning(
                "The change of pipeline %s is recorded, but Redis did not take it (%s). "
                "Workers see it after the next refresh.",
                name,
                error,
            )

    def _audit(
        self,
        rows: PipelineRows,
        action: str,
        name: str,
        version: str | None = None,
        reason: str | None = None,
    ) -> None:
        rows.audit(actor=self.actor, action=action, name=name, version=version, reason=reason)


def _head_version(head: Any) -> str:
    """What a decision about the version in use is made on."""
    return f"{head.version_in_use or 'none'}{' disabled' if head.disabled else ''}"


def _insert(rows: PipelineRows, definition: PipelineDefinition) -> Applied:
    """Add a version as a draft; one that is there stays as it is."""
    name, version = definition.name, definition.version
    is_new = rows.add_version(definition)
    row = rows.find_version(name, version)
    if (row.content_hash, row.definition) != (definition.content_hash, definition.to_json()):
        _restore(rows, row, definition)
    return Applied(name=name, version=version, is_new=is_new, state=row.state)


def _check_shows_nothing_sealed(rows: PipelineRows, definition: PipelineDefinition) -> None:
    """A transaction that may call a sealed pipeline rests sealed. A child that is sealed later is
    not known here; then nothing is shown, and nothing is found by it."""
    shows = [("search", definition.search), ("payee", definition.payee and definition.payee.show)]
    mistaken = [key for key, given in shows if given]
    if not mistaken:
        return

    def current(name: str) -> PipelineDefinition:
        version = rows.head(name).version_in_use
        if version is None:
            raise PipelineUnknown(name)
        return verified(rows.find_version(name, version))

    if child := sealed_child(definition, current):
        why = f"it calls {child}, which is sealed: nothing of its data may rest in clear text"
        raise PipelineInvalid([f"{definition.name}: {key}: {why}" for key in mistaken])


def _restore(rows: PipelineRows, row: Any, definition: PipelineDefinition) -> None:
    """Give an altered row its content back: what a version must hold is fixed by its name."""
    if is_intact(row.definition, content_hash=row.content_hash, version=row.version):
        raise VersionMismatch(
            f"Version {row.version} of pipeline {row.name} is taken by another content whose hash "
            f"starts alike. Change anything, such as the description, and apply it again."
        )
    log.warning("Pipeline %s version %s was altered; it is restored", row.name, row.version)
    rows.restore_content(definition)


def _intact_text(rows: PipelineRows, name: str, version: str | None) -> str | None:
    """The JSON to copy; an altered one is left out, and the error says why when it is needed."""
    if version is None:
        return None
    row = rows.find_version(name, version)
    intact = is_intact(row.definition, content_hash=row.content_hash, version=row.version)
    return row.definition if intact else None


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return f"uid {os.getuid()}"
