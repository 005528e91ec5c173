"""Routes about step types: what they are for and what params they take; for operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request
from fastapi.responses import Response

from datp_tasks.api.lists import LIMIT_MAX, Cursor, Limit, listed, page_of_all
from datp_tasks.api.operator_models import StepTypeShown, StepTypesShown
from datp_tasks.api.problems import not_found
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.services import services_of
from datp_tasks.engine.step_types import list_step_types, show_step_type
from datp_tasks.errors import StepTypeUnknown
from datp_tasks.model.actor import Role

routes = router("/v1", "operator", role=Role.ADMIN)


@routes.get("/step-types", operation_id="listStepTypes", response_model=StepTypesShown)
@needs(Role.VIEWER)
async def step_types(request: Request, limit: Limit = LIMIT_MAX, cursor: Cursor = None) -> Response:
    """Those of live nodes and those that come with the package, by name."""
    services = services_of(request)
    found = await services.threads.run(list_step_types, services.live)
    page, more = page_of_all(found, lambda each: each.name, cursor, limit)
    shown = [each.to_json() for each in page]
    return listed("stepTypes", shown, cursor=more, limit=limit)


@routes.get("/step-types/{name:path}", operation_id="getStepType", response_model=StepTypeShown)
@needs(Role.VIEWER)
async def step_type(request: Request, name: Annotated[str, Path(max_length=200)]) -> Response:
    """One: its description, the JSON schema of its params, a definition to begin with."""
    services = services_of(request)
    try:
        found = await services.threads.run(show_step_type, services.live, name)
    except StepTypeUnknown:
        raise not_found("such step type") from None
    return json_response(found.to_json())
