"""The OpenAPI document: what FastAPI knows, plus every problem that a route can answer with."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from datp_tasks.api.examples import Examples
from datp_tasks.api.links import add_links
from datp_tasks.api.models import ProblemDocument, WebhookEvent
from datp_tasks.api.problems import MEDIA_TYPE
from datp_tasks.api.routing import GuardedRoute

DESCRIPTION = (
    "Hand in transactions, look at them, wait for them, act on them. Every error is a problem "
    "document (RFC 9457). Times are in UTC."
)
PROBLEMS = {
    400: "The body is not JSON, or the address is garbled.",
    401: "An API key is missing, unknown, expired or revoked.",
    403: "The key has not the role or the grant that this needs.",
    404: "There is no such thing, or it belongs to another owner.",
    408: "The body did not arrive in time.",
    409: "The state of things does not allow it.",
    410: "What came after the cursor may be dropped by now.",
    412: "The transaction is not as `If-Match` says any more.",
    413: "The body is too large.",
    414: "The URL is too long.",
    415: "The body is not declared as JSON.",
    422: "The request does not fit; the problem names each mistake.",
    429: "Too often, or too much in flight; Retry-After says when.",
    431: "The headers are too large.",
    500: "The server made a mistake.",
    503: "A server that is needed is unavailable; Retry-After says when to ask again.",
}
#: What a webhook sends; docs/webhooks.md has the headers that sign it.
WEBHOOK = {
    "operationId": "receiveTransactionEvent",
    "summary": "Transaction Event",
    "description": "The end of a transaction, or a progress report of it, for its webhook.",
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/WebhookEvent"}}},
    },
    "responses": {"200": {"description": "Any 2xx: it is delivered."}},
}
WITH_BODY = (408, 413, 415)
AFTER = {429, 503}


def document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema:
        return app.openapi_schema
    made = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
    )
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    problem = ProblemDocument.model_json_schema(
        by_alias=True, ref_template="#/components/schemas/{model}"
    )
    schemas |= problem.pop("$defs", {})
    schemas["Problem"] = problem
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    rights, examples = _rights(app), Examples(schemas)
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            _complete(operation, rights.get((method.upper(), path), []))
            examples.add_to(operation)
            add_links(operation["operationId"], operation["responses"])
    made["webhooks"] = {"transactionEvent": {"post": deepcopy(WEBHOOK)}}
    schemas["WebhookEvent"] = WebhookEvent.model_json_schema(
        by_alias=True, ref_template="#/components/schemas/{model}"
    )
    schemas |= schemas["WebhookEvent"].pop("$defs", {})
    examples.add_to_webhook(made["webhooks"]["transactionEvent"]["post"])
    app.openapi_schema = made
    return made


def _rights(app: FastAPI) -> dict[tuple[str, str], list[str]]:
    """By method and path: the role that a key must have, or the grants that a client's key needs.

    OpenAPI 3.1 has room for them beside the name of the scheme.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for route in (route for router in app.state.routers for route in router.routes):
        if isinstance(route, GuardedRoute):
            role, grants = route.needed_role, getattr(route.endpoint, "needed_grants", ())
            needed = [f"role:{role}"] if role else [f"grant:{each}" for each in grants]
            found |= {(method, route.path_format): needed for method in route.methods or ()}
    return found


def _complete(operation: dict[str, Any], rights: list[str]) -> None:
    tags = operation.get("tags", [])
    is_open = "health" in tags and not rights
    # The door answers before a route is known (api/door.py).
    codes = {400, 414, 431, 500, 503}
    if not is_open:
        codes |= {401, 403, 404, 429}
    if not is_open:
        operation["security"] = [{"key": rights}]
    if operation.get("parameters") or "requestBody" in operation:
        codes.add(422)
    if "requestBody" in operation:
        codes.update(WITH_BODY)
    responses = operation["responses"]
    codes |= {int(code) for code in responses if int(code) >= 400}
    if "422" in responses and 422 not in codes:
        del responses["422"]
    for code in sorted(codes):
        responses[str(code)] = _problem(code)


def _problem(code: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": PROBLEMS[code],
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if code in AFTER:
        seconds = {"schema": {"type": "integer"}, "description": "Seconds."}
        described["headers"] = {"Retry-After": seconds}
    return described
