"""The editor of drafts: a definition as YAML, its mistakes beside it, and storing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from fastapi.responses import Response

from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.api.pipeline_versions import DefinitionIn, parsed_definition, steps_not_offered
from datp_tasks.api.problems import not_found
from datp_tasks.api.services import Services
from datp_tasks.errors import PipelineInvalid, PipelineUnknown
from datp_tasks.model.actor import Role
from datp_tasks.pipelines.records import Applied
from datp_tasks.pipelines.yaml_text import dump
from datp_tasks.record.database import translate_outage

pages = Pages()

TEXT_CHARS_MAX = 200_000
#: What a person begins with who has nothing yet.
BEGINNING = """pipeline: my-pipeline
description: What it is for
steps:
  - type: example/first
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What is known about a text."""

    name: str = ""
    version: str = ""
    mistakes: Sequence[str] = ()
    warnings: Sequence[str] = ()


@pages.page("/drafts")
async def drafts(visit: Visit) -> Response:
    """An editor, with a version to begin with if one is named."""
    given = visit.request.query_params
    name, version = given.get("pipeline", ""), given.get("version") or None
    text = await visit.run(_text, visit.services, name, version) if name else BEGINNING
    return _editor(visit, text, None)


@pages.action("/drafts/check", role=Role.VIEWER)
async def check(visit: Visit) -> Response:
    """What is wrong with it; nothing is stored."""
    text = visit.form.get("yaml", "")
    return _editor(visit, text, await visit.run(checked, visit.services, text))


@pages.action("/drafts", role=Role.ADMIN)
async def apply(visit: Visit) -> Response:
    """Store it as a draft, under the version that its content gives it."""
    text = visit.form.get("yaml", "")
    found: Checked = await visit.run(checked, visit.services, text)
    if found.mistakes:
        return _editor(visit, text, found)

    def put() -> Applied:
        definition = parsed_definition(DefinitionIn(yaml=text))
        with translate_outage():
            return visit.services.pipelines.acting(visit.caller.actor).apply(definition)

    try:
        applied: Applied = await visit.run(put)
    except PipelineInvalid as error:
        # Such as a shared mapping that is not stored.
        return _editor(visit, text, Checked(mistakes=error.mistakes))
    said = (
        f"Version {applied.version} is stored as a draft. It is not in use."
        if applied.is_new
        else f"Version {applied.version} with this content was stored before."
    )
    place = with_query(f"/pipelines/{quote(applied.name)}", {"version": applied.version})
    return visit.back_to(place, said)


def checked(services: Services, text: str) -> Checked:
    if not text.strip() or len(text) > TEXT_CHARS_MAX:
        return Checked(mistakes=[f"write a definition, of at most {TEXT_CHARS_MAX:,} characters"])
    try:
        definition = parsed_definition(DefinitionIn(yaml=text))
    except PipelineInvalid as error:
        return Checked(mistakes=error.mistakes)
    return Checked(
        name=definition.name,
        version=definition.version,
        warnings=steps_not_offered(services, definition),
    )


def _text(services: Services, name: str, version: str | None) -> str:
    with translate_outage():
        try:
            found = services.pipelines.show(name, version).definition
        except PipelineUnknown as error:
            raise not_found(f"such pipeline or version: {error}") from None
    return dump(found.to_mapping())


def _editor(visit: Visit, text: str, found: Checked | None) -> Response:
    return visit.page(
        "draft.html",
        422 if found is not None and found.mistakes else 200,
        title="Draft of a pipeline",
        text=text,
        checked=found,
        may_admin=visit.has(Role.ADMIN),
    )
