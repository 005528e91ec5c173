"""Routes about mappings that pipelines share: list, show, apply, commit, use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Path, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.lists import LIMIT_MAX, Cursor, Limit, listed, page_of_all
from datp_tasks.api.models import Given, Long, Object, Paged, Sent
from datp_tasks.api.pipeline_versions import NEW, UNCHANGED, CommitIn, DefinitionIn, sent_document
from datp_tasks.api.problems import not_found
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import caller_of, services_of
from datp_tasks.errors import MappingUnknown
from datp_tasks.model.actor import Role
from datp_tasks.model.mapping import parse_mapping
from datp_tasks.pipelines.mapping_store import MappingStore, StoredMapping
from datp_tasks.record.database import translate_outage

routes = router("/v1", "operator", role=Role.ADMIN)

T = TypeVar("T")
Name = Annotated[str, Path(max_length=200)]
Version = Annotated[str, Path(max_length=200, description="A version, or the start of one.")]


class MappingUseIn(Sent):
    reason: Annotated[Long, Field(description="Why; it is kept in the audit table.")] = ""


class MappingListed(Given):
    name: str
    version_in_use: str | None
    versions: int
    drafts: int
    updated_at: datetime


class MappingsShown(Paged):
    mappings: list[MappingListed]


class MappingVersion(Given):
    name: str
    version: str
    state: Literal["draft", "committed"]
    comment: str | None
    created_at: datetime
    in_use: bool


class MappingVersionShown(MappingVersion):
    definition: Object


class MappingShown(Given):
    name: str
    versions: Annotated[list[MappingVersion], Field(description="The newest first.")]


class AppliedMapping(Given):
    name: str
    version: str
    new: Annotated[bool, Field(description="False: the same content was stored before.")]


class RepublishedPipeline(Given):
    pipeline: str
    version: str
    approval_id: Annotated[
        int | None, Field(description="It is in use once another person has approved this.")
    ]


class MappingInUse(MappingVersion):
    pipelines: Annotated[
        list[RepublishedPipeline], Field(description="Those in use that name it: a new version.")
    ]


@routes.get("/mappings", operation_id="listMappings", response_model=MappingsShown)
@needs(Role.VIEWER)
async def list_mappings(
    request: Request, limit: Limit = LIMIT_MAX, cursor: Cursor = None
) -> Response:
    """All mappings, by name."""
    stored = await _stored(request, lambda store: store.list())
    found, more = page_of_all(stored, lambda each: each.name, cursor, limit)
    shown = [
        {
            "name": each.name,
            "versionInUse": each.version_in_use,
            "versions": each.versions,
            "drafts": each.drafts,
            "updatedAt": time_text(each.updated_at),
        }
        for each in found
    ]
    return listed("mappings", shown, cursor=more, limit=limit)


@routes.post(
    "/mappings",
    operation_id="applyMapping",
    status_code=NEW,
    response_model=AppliedMapping,
    responses={200: {"model": AppliedMapping, "description": "The same content is stored."}},
)
async def apply_mapping(request: Request, wanted: DefinitionIn) -> Response:
    """Store a mapping as a draft, under the version that its content gives it."""

    def apply(store: MappingStore) -> tuple[str, str, bool]:
        definition = parse_mapping(sent_document(wanted, source="mapping"), source="mapping")
        return definition.name, *store.apply(definition)

    name, version, is_new = await _stored(request, apply)
    answer = {"name": name, "version": version, "new": is_new}
    return json_response(answer, NEW if is_new else UNCHANGED)


@routes.get("/mappings/{name}", operation_id="getMapping", response_model=MappingShown)
@needs(Role.VIEWER)
async def show_mapping(request: Request, name: Name) -> Response:
    """A mapping and its versions."""
    found = await _stored(request, lambda store: store.versions(name))
    return json_response({"name": name, "versions": [_version_json(each) for each in found]})


@routes.get(
    "/mappings/{name}/versions/{version}",
    operation_id="getMappingVersion",
    response_model=MappingVersionShown,
)
@needs(Role.VIEWER)
async def show_mapping_version(request: Request, name: Name, version: Version) -> Response:
    """One version with its definition."""
    found = await _stored(request, lambda store: store.show(name, version))
    return json_response({**_version_json(found), "definition": found.definition.to_mapping()})


@routes.post(
    "/mappings/{name}/versions/{version}/commit",
    operation_id="commitMapping",
    response_model=MappingVersion,
)
async def commit_mapping(
    request: Request, name: Name, version: Version, wanted: CommitIn
) -> Response:
    """Mark a draft as committed, with a comment; a committed one stays as it is."""

    def commit(store: MappingStore) -> StoredMapping:
        return store.show(name, store.commit(name, version, wanted.comment))

    return json_response(_version_json(await _stored(request, commit)))


@routes.post(
    "/mappings/{name}/versions/{version}/use",
    operation_id="useMapping",
    response_model=MappingInUse,
)
async def use_mapping(
    request: Request, name: Name, version: Version, wanted: MappingUseIn | None = None
) -> Response:
    """Pipelines get this version from now on; each in use that names it gets a new version."""
    reason = wanted.reason if wanted else ""

    def use(store: MappingStore) -> tuple[StoredMapping, list[dict[str, Any]]]:
        found = store.show(name, version)
        made = [
            {
                "pipeline": each.pipeline,
                "version": each.version,
                "approvalId": each.approval_id,
            }
            for each in store.use(name, found.version, reason=reason)
        ]
        return store.show(name, found.version), made

    found, made = await _stored(request, use)
    return json_response({**_version_json(found), "pipelines": made})


async def _stored(request: Request, work: Callable[[MappingStore], T]) -> T:
    """Work on the store, in the name of the caller and in a thread."""
    services = services_of(request)
    pipelines = services.pipelines.acting(caller_of(request).actor)
    store = MappingStore(services.transactions.record.engine, pipelines)

    def run() -> T:
        with translate_outage():
            try:
                return work(store)
            except MappingUnknown as error:
                raise not_found(f"such mapping or version: {error}") from None

    return await services.threads.run(run)


def _version_json(stored: StoredMapping) -> dict[str, Any]:
    return {
        "name": stored.definition.name,
        "version": stored.version,
        "state": stored.state,
        "comment": stored.comment,
        "createdAt": time_text(stored.created_at),
        "inUse": stored.in_use,
    }
