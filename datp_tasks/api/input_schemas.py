"""What an input must be: the schema of each pipeline, for those who hand in transactions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import Response

from datp_tasks.api.operator_models import InputSchemaShown
from datp_tasks.api.problems import not_found
from datp_tasks.api.routing import json_response, router
from datp_tasks.api.services import services_of
from datp_tasks.errors import PipelineDisabled, PipelineUnknown
from datp_tasks.model.input_schema import DIALECT
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
        schema = {"$schema": DIALECT, **(definition.input_schema or ANY_OBJECT)}
        return {"pipeline": name, "version": definition.version, "inputSchema": schema}

    return json_response(await services.threads.run(read))
