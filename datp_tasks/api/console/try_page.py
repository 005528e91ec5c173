"""Try: hand in a stored example or an input of one's own, then look at the transaction."""

from __future__ import annotations

import json

import uuid_utils
from fastapi.responses import Response

from datp_tasks.api.console.visit import Pages, Visit
from datp_tasks.api.problems import Problem, problem_of, status_of
from datp_tasks.api.services import Services
from datp_tasks.api.transactions import hand_in
from datp_tasks.client.requests import Request as Wanted
from datp_tasks.errors import DatpError, NotGranted
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.payload import NotJson, parse
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.model.rights import check_submit
from datp_tasks.record.database import translate_outage

pages = Pages()

#: Of the pipelines in use, by name, the ones that are looked at.
PIPELINES_MAX = 200
NAME_CHARS_MAX = 200


@pages.page("/try")
async def show(visit: Visit) -> Response:
    given = visit.request.query_params
    return await _page(visit, given.get("pipeline", ""), case=given.get("case", ""))


@pages.action("/try", role=Role.VIEWER, takes_input=True)
async def submit(visit: Visit) -> Response:
    """As POST /v1/transactions, in the name of who is signed in, with the grants of the key."""
    name, text = visit.form.get("pipeline", "")[:NAME_CHARS_MAX], visit.form.get("input", "")
    if not name:
        return await _page(visit, "", text=text, trouble="Choose a pipeline.")
    try:
        # As the body of a request: no number and no field is changed or dropped on the way.
        data = parse(text, what="The input", bytes_max=visit.services.settings.input_bytes_max)
    except NotJson as error:
        return await _page(visit, name, text=text, trouble=str(error))
    if not isinstance(data, dict):
        return await _page(visit, name, text=text, trouble="An input is a JSON object: {…}.")
    caller = visit.caller
    wanted = Wanted(
        pipeline=name,
        input=data,
        owner=caller.owner,
        external_id=visit.form.get("external_id", "").strip() or None,
        by=caller.actor,
    )
    try:
        accepted = await hand_in(visit.services, wanted)
    except NotGranted:
        raise
    except (DatpError, Problem) as error:
        status = status_of(error)
        if status >= 500 or status == 429:
            raise
        return await _page(visit, name, text=text, trouble=str(problem_of(error).detail))
    said = "It was accepted before." if accepted.duplicate else "It is accepted."
    return visit.back_to(f"/transactions/{accepted.tx_id}", said)


@pages.action("/try/edit", role=Role.VIEWER, takes_input=True)
async def edit(visit: Visit) -> Response:
    """The form with an input that the person has before them; nothing is handed in yet."""
    name, text = visit.form.get("pipeline", "")[:NAME_CHARS_MAX], visit.form.get("input", "")
    bytes_max = visit.services.settings.input_bytes_max
    return await _page(visit, name, text=await visit.run(_easy_to_read, text.strip(), bytes_max))


def _easy_to_read(text: str, bytes_max: int) -> str:
    """On many lines, if it can still be handed in so; as it came if it is no JSON."""
    try:
        easy = json.dumps(
            parse(text, what="The input", bytes_max=bytes_max), indent=2, ensure_ascii=False
        )
    except NotJson:
        return text
    return easy if len(easy.encode()) <= bytes_max else text


async def _page(
    visit: Visit, name: str, *, case: str = "", text: str | None = None, trouble: str = ""
) -> Response:
    known: list[PipelineDefinition] = await visit.run(
        startable, visit.services, visit.caller.actor, visit.caller.owner
    )
    chosen = next((each for each in known if each.name == name), None)
    cases = chosen.cases if chosen is not None else ()
    example = next((each for each in cases if each.name == case), None)
    if text is None:
        text = json.dumps(example.input if example else {}, indent=2, ensure_ascii=False)
    return visit.page(
        "try.html",
        422 if trouble else 200,
        title="Try",
        known=known,
        chosen=chosen,
        wanted=name,
        cases=cases,
        case=case,
        text=text,
        trouble=trouble,
        owner=visit.caller.owner,
        # The same form sent twice is the same transaction.
        external_id=visit.form.get("external_id") or f"try-{uuid_utils.uuid7()}",
    )


def startable(services: Services, actor: Actor, owner: str) -> list[PipelineDefinition]:
    """Pipelines that take transactions and that this person may start."""
    found = []
    with translate_outage():
        listed = services.pipelines.list()
        in_use = [each for each in listed if each.version_in_use and not each.disabled]
        for each in in_use[:PIPELINES_MAX]:
            definition = _load(services, each.name, each.version_in_use or "")
            if definition is not None and _may_start(actor, definition, owner):
                found.append(definition)
    return found


def _load(services: Services, name: str, version: str) -> PipelineDefinition | None:
    try:
        return services.catalogue.version(name, version)
    except DatpError:
        # Altered in the database: it cannot be started.
        return None


def _may_start(actor: Actor, definition: PipelineDefinition, owner: str) -> bool:
    if not definition.startable:
        return False
    try:
        check_submit(actor, definition.name, definition.access, owner)
    except NotGranted:
        return False
    return True
