"""What an input must be: the schema of each pipeline, for those who hand in transactions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import Response

from datp_tasks.api.operator_models import InputSchemaShown
from datp_tasks.api.problems import not_found
from datp_tasks.api.routing import json_response, router
from datp_tasks.api.services import Services, services_of
from datp_tasks.engine.registry import registry
from datp_tasks.errors import PipelineDisabled, PipelineUnknown
from datp_tasks.live.nodes import described_step_type
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.model.input_schema import DIALECT
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.record.database import translate_outage

routes = router("/v1", "transactions")

#: Of a pipeline that says nothing.
ANY_OBJECT = {"$schema": DIALECT, "type": "object"}


@routes.get(
    "/pipelines/{name}/schema",
    operation_id="getInputSchema",
    response_model=InputSchemaShown,
)
async def input_schema(
    request: Request, name: Annotated[str, Path(max_length=200, examples=["transfer"])]
) -> Response:
    """What the input of a pipeline must be, in the version that new transactions get."""
    services = services_of(request)

    def read() -> dict[str, Any]:
        with translate_outage():
            try:
                definition = services.catalogue.current(name)
            except (PipelineUnknown, PipelineDisabled):
                raise not_found("such pipeline") from None
        if not definition.startable:
            raise not_found("such pipeline")
        written = definition.input_schema
        derived = _derived(services, definition) if written is None else None
        return {
            "pipeline": name,
            "version": definition.version,
            "inputSchema": {"$schema": DIALECT, **(written or derived or ANY_OBJECT)},
            "source": "written" if written else "derived" if derived else "none",
            "checked": written is not None,
        }

    return json_response(await services.threads.run(read))


def _derived(services: Services, definition: PipelineDefinition) -> dict[str, Any] | None:
    """What the first step says of its input, as its nodes describe it."""
    name = definition.steps[0].type
    shipped = registry.find(name)
    live = services.live
    try:
        about = described_step_type(live.redis, live.keys, name)
    except RedisError:
        # What is shipped is known without Redis.
        about = None
    if about is None and shipped is not None:
        about = shipped.described()
    found = (about or {}).get("input")
    return found if isinstance(found, dict) else None
