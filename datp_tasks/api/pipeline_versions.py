"""Routes that change pipelines: check, apply, commit, compare, export, import."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.models import Given, Long, Object, Sent, Text
from datp_tasks.api.operator_models import ExportedPipeline
from datp_tasks.api.problems import invalid, not_found
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import CONFLICT
from datp_tasks.engine.registry import param_mistakes, registry
from datp_tasks.errors import PipelineInvalid, PipelineUnknown
from datp_tasks.model.actor import Role
from datp_tasks.model.pipeline import PipelineDefinition, parse_definition
from datp_tasks.pipelines.records import Applied, VersionInfo
from datp_tasks.pipelines.step_availability import offered_step_types, unoffered
from datp_tasks.pipelines.version_store import PipelineStore
from datp_tasks.pipelines.yaml_text import YamlTextError, load_documents
from datp_tasks.record.database import translate_outage

routes = router("/v1", "operator", role=Role.ADMIN)

T = TypeVar("T")
Name = Annotated[str, Path(max_length=200)]
Version = Annotated[str, Path(max_length=200, description="A version, or the start of one.")]
SOURCE = "pipeline"
NEW, UNCHANGED = 201, 200


class DefinitionIn(Sent):
    definition: Annotated[
        Object | None, Field(description="The definition as an object, as its file has it.")
    ] = None
    yaml: Annotated[
        str | None, Field(max_length=4_194_304, description="Or as the text of a YAML file.")
    ] = None


class CommitIn(Sent):
    comment: Annotated[Long, Field(min_length=1, description="What was changed, and why.")]


class CloneIn(Sent):
    name: Annotated[Text, Field(min_length=1, description="What the new pipeline is called.")]
    version: Annotated[Text | None, Field(description="Else the one in use.")] = None


class CheckedDefinition(Given):
    valid: bool
    name: str | None
    version: Annotated[str | None, Field(description="What `apply` would call it.")]
    mistakes: list[str]
    warnings: Annotated[list[str], Field(description="Steps that no live node offers.")]


class AppliedVersion(Given):
    name: str
    version: str
    new: Annotated[bool, Field(description="False: the same content was stored before.")]
    state: Literal["draft", "committed"]
    warnings: list[str]


class PipelineVersion(Given):
    name: str
    version: str
    content_hash: str
    state: Literal["draft", "committed"]
    comment: str | None
    created_at: datetime
    committed_at: datetime | None
    in_use: bool


class PipelineVersionShown(PipelineVersion):
    definition: Object


class VersionsCompared(Given):
    diff: Annotated[str, Field(description="Unified, of the two as YAML; empty: no difference.")]


@routes.post("/pipelines/check", response_model=CheckedDefinition)
@needs(Role.VIEWER)
async def check_pipeline(request: Request, wanted: DefinitionIn) -> Response:
    """What is wrong with a definition; nothing is stored."""
    services = services_of(request)

    def check() -> dict[str, Any]:
        try:
            definition = parsed_definition(wanted)
        except PipelineInvalid as error:
            nothing: dict[str, Any] = {"name": None, "version": None, "warnings": []}
            return {"valid": False, "mistakes": error.mistakes, **nothing}
        return {
            "valid": True,
            "name": definition.name,
            "version": definition.version,
            "mistakes": [],
            "warnings": steps_not_offered(services, definition),
        }

    return json_response(await services.threads.run(check))


@routes.post(
    "/pipelines",
    status_code=NEW,
    response_model=AppliedVersion,
    responses={200: {"model": AppliedVersion, "description": "The same content is stored."}},
)
async def apply_pipeline(request: Request, wanted: DefinitionIn) -> Response:
    """Store a definition as a draft, under the version that its content gives it."""
    services = services_of(request)

    def apply(store: PipelineStore) -> tuple[Applied, list[str]]:
        definition = parsed_definition(wanted)
        return store.apply(definition), steps_not_offered(services, definition)

    applied, warnings = await _stored(request, apply)
    status = NEW if applied.is_new else UNCHANGED
    return json_response({**applied_json(applied), "warnings": warnings}, status)


@routes.get("/pipelines/{name}/versions/{version}", response_model=PipelineVersionShown)
@needs(Role.VIEWER)
async def get_pipeline_version(request: Request, name: Name, version: Version) -> Response:
    """One version with its definition."""
    found = await _stored(request, lambda store: store.show(name, version))
    definition = json.loads(found.definition.to_json())
    return json_response({**version_json(found.info), "definition": definition})


@routes.post("/pipelines/{name}/versions/{version}/commit", response_model=PipelineVersion)
async def commit_pipeline(
    request: Request, name: Name, version: Version, wanted: CommitIn
) -> Response:
    """Mark a draft as committed, with a comment; a committed one stays as it is."""
    found = await _stored(request, lambda store: store.commit(name, version, wanted.comment))
    return json_response(version_json(found))


@routes.get("/pipelines/{name}/versions/{version}/export", response_model=ExportedPipeline)
@needs(Role.VIEWER)
async def export_pipeline(request: Request, name: Name, version: Version) -> Response:
    """A version with its hash, for `import` in another installation."""
    return json_response(await _stored(request, lambda store: store.export(name, version)))


@routes.post(
    "/pipelines/import",
    status_code=NEW,
    response_model=AppliedVersion,
    responses={200: {"model": AppliedVersion, "description": "The same content is stored."}},
)
async def import_pipeline(request: Request, wanted: Object) -> Response:
    """Store an exported version: committed, but not in use. An altered document is refused."""
    applied = await _stored(request, lambda store: store.import_(wanted))
    status = NEW if applied.is_new else UNCHANGED
    return json_response({**applied_json(applied), "warnings": []}, status)


@routes.post(
    "/pipelines/{name}/clone",
    status_code=NEW,
    response_model=AppliedVersion,
    responses={200: {"model": AppliedVersion, "description": "The same content is stored."}},
)
async def clone_pipeline(request: Request, name: Name, wanted: CloneIn) -> Response:
    """The same pipeline under another name, as a draft."""
    applied = await _stored(request, lambda store: store.clone(name, wanted.name, wanted.version))
    status = NEW if applied.is_new else UNCHANGED
    return json_response({**applied_json(applied), "warnings": []}, status)


@routes.delete(
    "/pipelines/{name}/versions/{version}", response_model=PipelineVersion, responses=CONFLICT
)
async def delete_draft(request: Request, name: Name, version: Version) -> Response:
    """Remove a draft that was never in use; a pipeline goes with its last version."""
    return json_response(version_json(await _stored(request, lambda s: s.delete(name, version))))


@routes.get("/pipelines/{name}/diff", response_model=VersionsCompared)
@needs(Role.VIEWER)
async def compare_pipeline(
    request: Request,
    name: Name,
    one: Annotated[Text, Query(alias="from", description="The version to start from.")],
    other: Annotated[Text, Query(alias="to", description="The version to compare with it.")],
) -> Response:
    """What changed from one version to another."""
    found = await _stored(request, lambda store: store.diff(name, one, other))
    return json_response({"diff": found})


async def _stored(request: Request, work: Callable[[PipelineStore], T]) -> T:
    """Work on the store, in the name of the caller and in a thread."""
    services = services_of(request)
    store = services.pipelines.acting(caller_of(request).actor)

    def run() -> T:
        with translate_outage():
            try:
                return work(store)
            except PipelineUnknown as error:
                raise not_found(f"such pipeline or version: {error}") from None

    return await services.threads.run(run)


def sent_document(wanted: DefinitionIn, *, source: str) -> Any:
    """What was sent, as an object or as YAML."""
    if (wanted.definition is None) == (wanted.yaml is None):
        raise invalid([{"loc": ("body",), "msg": "give definition or yaml, and not both"}])
    if wanted.yaml is None:
        return wanted.definition
    try:
        documents = load_documents(wanted.yaml)
    except YamlTextError as error:
        raise PipelineInvalid([f"{source}: {error}"]) from None
    if len(documents) != 1:
        raise PipelineInvalid([f"{source}: one document is wanted, these are {len(documents)}"])
    return documents[0]


def parsed_definition(wanted: DefinitionIn) -> PipelineDefinition:
    """The definition, checked as far as this process knows its step types."""
    raw = sent_document(wanted, source=SOURCE)
    definition = parse_definition(raw, source=SOURCE)
    mistakes = param_mistakes([definition], registry)
    if mistakes:
        raise PipelineInvalid(mistakes)
    return definition


def steps_not_offered(services: Services, definition: PipelineDefinition) -> list[str]:
    """Warnings: steps that no live node offers."""
    live = services.live
    return unoffered([definition], offered_step_types(live.redis, live.keys))


def applied_json(applied: Applied) -> dict[str, Any]:
    return {
        "name": applied.name,
        "version": applied.version,
        "new": applied.is_new,
        "state": applied.state,
    }


def version_json(info: VersionInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "version": info.version,
        "contentHash": info.content_hash,
        "state": info.state,
        "comment": info.comment,
        "createdAt": time_text(info.created_at),
        "committedAt": time_text(info.committed_at),
        "inUse": info.in_use,
    }
