"""Pipelines, node groups and API keys over HTTP, with the methods that commands call."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any

from datp_tasks.cli.remote_calls import Json, RemoteCalls, known_moment, moment, refuse_over_http
from datp_tasks.errors import MappingUnknown, PipelineUnknown
from datp_tasks.live.nodes import Node
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.grants import Grants
from datp_tasks.model.mapping import MappingDefinition
from datp_tasks.model.node_groups import NodeGroup
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.pipelines.mapping_store import MappingInfo, Republished, StoredMapping
from datp_tasks.pipelines.records import Applied, PipelineInfo, StoredVersion, VersionInfo
from datp_tasks.record.api_keys import ApiKey, NewKey, OwnerLimits


class RemoteVersions:
    """Versions of what is kept in versions: pipelines and mappings."""

    def __init__(self, calls: RemoteCalls, kind: str) -> None:
        self._calls = calls
        self._kind = kind

    def all(self, name: str) -> list[Json]:
        """The newest first."""
        found: list[Json] = self._calls.get(self._kind, name)["versions"]
        return found

    def one(self, name: str, version: str | None) -> Json:
        """None: the one in use, else the newest."""
        if version is None:
            found = self.all(name)
            version = next((each for each in found if each["inUse"]), found[0])["version"]
        return self._calls.get(self._kind, name, "versions", str(version))

    def latest_draft(self, name: str) -> str | None:
        """The server decides which one it is when it is asked for; here the newest is named."""
        drafts = (each["version"] for each in self.all(name) if each["state"] == "draft")
        return next(drafts, None)


class RemotePipelines:
    """As `PipelineStore`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls
        self._versions = RemoteVersions(calls, "pipelines")

    def apply(self, definition: PipelineDefinition) -> Applied:
        body = {"definition": definition.to_mapping()}
        return _applied(self._calls.post("pipelines", body=body))

    def commit(self, name: str, version: str | None = None, comment: str = "") -> VersionInfo:
        chosen = version or self._versions.latest_draft(name)
        if chosen is None:
            raise PipelineUnknown(
                f"Pipeline {name} has no draft to commit. "
                "`datp pipelines apply` makes one from a file."
            )
        body = {"comment": comment}
        path = ("pipelines", name, "versions", chosen, "commit")
        return _version(self._calls.post(*path, body=body))

    def use(
        self, name: str, version: str, *, reason: str = "", break_glass: bool = False
    ) -> VersionInfo:
        body: Json = {"breakGlass": break_glass}
        if reason:
            body["reason"] = reason
        path = ("pipelines", name, "versions", version, "use")
        return _version(self._calls.post(*path, body=body))

    def disable(self, name: str) -> None:
        self._calls.post("pipelines", name, "disable")

    def list(self) -> tuple[PipelineInfo, ...]:
        return tuple(
            PipelineInfo(
                name=each["name"],
                version_in_use=each["versionInUse"],
                disabled=each["disabled"],
                versions=each["versions"],
                drafts=each["drafts"],
                updated_at=known_moment(each["updatedAt"]),
            )
            for each in self._calls.pages("pipelines")
        )

    def versions(self, name: str) -> tuple[VersionInfo, ...]:
        return tuple(_version(each) for each in self._versions.all(name))

    def show(self, name: str, version: str | None = None) -> StoredVersion:
        shown = self._versions.one(name, version)
        definition = PipelineDefinition.from_mapping(shown["definition"])
        return StoredVersion(info=_version(shown), definition=definition)

    def export(self, name: str, version: str | None = None) -> Json:
        chosen = version or self.show(name).info.version
        return self._calls.get("pipelines", name, "versions", chosen, "export")

    def import_(self, document: Any) -> Applied:
        return _applied(self._calls.post("pipelines", "import", body=document))

    def clone(self, name: str, new_name: str, version: str | None = None) -> Applied:
        body: Json = {"name": new_name}
        if version is not None:
            body["version"] = version
        return _applied(self._calls.post("pipelines", name, "clone", body=body))

    def delete(self, name: str, version: str) -> VersionInfo:
        return _version(self._calls.send("DELETE", "pipelines", name, "versions", version))

    def diff(self, name: str, a: str, b: str) -> str:
        return str(self._calls.get("pipelines", name, "diff", **{"from": a, "to": b})["diff"])

    def __getattr__(self, name: str) -> Any:
        refuse_over_http(f"the pipelines' {name}")


class RemoteMappings:
    """As `MappingStore`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls
        self._versions = RemoteVersions(calls, "mappings")

    def apply(self, definition: MappingDefinition) -> tuple[str, bool]:
        found = self._calls.post("mappings", body={"definition": definition.to_mapping()})
        return found["version"], found["new"]

    def commit(self, name: str, version: str | None = None, comment: str = "") -> str:
        chosen = version or self._versions.latest_draft(name)
        if chosen is None:
            raise MappingUnknown(f"Mapping {name} has no draft to commit.")
        path = ("mappings", name, "versions", chosen, "commit")
        return str(self._calls.post(*path, body={"comment": comment})["version"])

    def use(self, name: str, version: str, *, reason: str = "") -> builtins.list[Republished]:
        path = ("mappings", name, "versions", version, "use")
        found = self._calls.post(*path, body={"reason": reason})
        return [
            Republished(each["pipeline"], each["version"], each["approvalId"])
            for each in found["pipelines"]
        ]

    def list(self) -> tuple[MappingInfo, ...]:
        return tuple(
            MappingInfo(
                name=each["name"],
                version_in_use=each["versionInUse"],
                versions=each["versions"],
                drafts=each["drafts"],
                updated_at=known_moment(each["updatedAt"]),
            )
            for each in self._calls.pages("mappings")
        )

    def show(self, name: str, version: str | None = None) -> StoredMapping:
        return self._stored(self._versions.one(name, version))

    def versions(self, name: str) -> tuple[StoredMapping, ...]:
        """Without their definitions: the command shows that of one."""
        return tuple(self._stored(each) for each in self._versions.all(name))

    @staticmethod
    def _stored(found: Json) -> StoredMapping:
        definition = found.get("definition") or {"mapping": found["name"], "fields": {}}
        return StoredMapping(
            definition=MappingDefinition.from_mapping(definition),
            version=found["version"],
            state=found["state"],
            comment=found["comment"],
            created_at=known_moment(found["createdAt"]),
            in_use=found["inUse"],
        )


class RemoteNodes:
    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def nodes(self) -> list[Node]:
        return [Node(each["group"], each["name"], each) for each in self._calls.pages("nodes")]


class RemoteGroups:
    """As `GroupStore`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def list(self) -> dict[str, NodeGroup]:
        found = self._calls.pages("groups")
        return {each["name"]: NodeGroup(each["name"], each["values"]) for each in found}

    def set(
        self,
        name: str,
        changes: Mapping[str, int | None],
        *,
        actor: Actor,
        reason: str | None = None,
        maintenance_group: str = "",
    ) -> NodeGroup:
        body: Json = {"values": dict(changes)}
        if reason is not None:
            body["reason"] = reason
        found = self._calls.send("PATCH", "groups", name, body=body)
        return NodeGroup(name, found["values"])


class RemoteQueues:
    """As `GroupQueues`."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def waiting(self, groups: Iterable[str]) -> dict[str, int]:
        found = {name: self._calls.get("groups", name)["waiting"] for name in groups}
        return {name: count for name, count in found.items() if count is not None}

    def tell_workers(self) -> None:
        """The API did so when it made the change."""


class RemoteKeys:
    """As `ApiKeys`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def create(
        self,
        owner: str,
        role: Role | None = None,
        *,
        actor: Actor,
        grants: Grants | None = None,
        name: str | None = None,
        expires_in_s: float | None = None,
    ) -> NewKey:
        wanted = {
            "owner": owner,
            "role": role and str(role),
            "grants": None if grants is None else list(grants.texts),
            "name": name,
            "expiresInSeconds": expires_in_s,
        }
        body = {key: value for key, value in wanted.items() if value is not None}
        found = self._calls.post("keys", body=body)
        return NewKey(_key(found), found["key"])

    def list(self, owner: str | None = None) -> list[ApiKey]:
        return [_key(each) for each in self._calls.pages("keys", owner=owner)]

    def revoke(self, key_id: str, *, actor: Actor, reason: str | None = None) -> bool:
        body = {} if reason is None else {"reason": reason}
        self._calls.post("keys", key_id, "revoke", body=body)
        return True

    def limits(self, owner: str) -> OwnerLimits:
        found = self._calls.get("owners", owner, "limits")
        return OwnerLimits(
            requests_per_s=found["requestsPerSecond"],
            burst_max=found["burstMax"],
            in_flight_max=found["inFlightMax"],
        )

    def set_limits(self, owner: str, limits: OwnerLimits, *, actor: Actor) -> None:
        body = {
            "requestsPerSecond": limits.requests_per_s,
            "burstMax": limits.burst_max,
            "inFlightMax": limits.in_flight_max,
        }
        self._calls.send("PUT", "owners", owner, "limits", body=body)


def _applied(found: Mapping[str, Any]) -> Applied:
    return Applied(
        name=found["name"], version=found["version"], is_new=found["new"], state=found["state"]
    )


def _version(found: Mapping[str, Any]) -> VersionInfo:
    return VersionInfo(
        name=found["name"],
        version=found["version"],
        content_hash=found["contentHash"],
        state=found["state"],
        comment=found["comment"],
        created_at=known_moment(found["createdAt"]),
        committed_at=moment(found["committedAt"]),
        in_use=found["inUse"],
    )


def _key(found: Mapping[str, Any]) -> ApiKey:
    grants = found["grants"]
    return ApiKey(
        id=found["id"],
        owner=found["owner"],
        role=None if found["role"] is None else Role(found["role"]),
        grants=None if grants is None else Grants.parse(grants),
        name=found["name"],
        created_at=known_moment(found["createdAt"]),
        expires_at=moment(found["expiresAt"]),
        revoked_at=moment(found["revokedAt"]),
        last_used_at=moment(found["lastUsedAt"]),
    )
