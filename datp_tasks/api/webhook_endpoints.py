"""Routes of webhook endpoints: where an owner is told of the events of all its transactions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from datp_tasks.api.lists import (
    LIMIT,
    LIMIT_MAX,
    Cursor,
    Limit,
    listed,
    page_of_more,
    read_cursor,
    read_moment_cursor,
    strange_cursor,
)
from datp_tasks.api.models import Given, Paged
from datp_tasks.api.once import keeps
from datp_tasks.api.operator_models import DeliveriesShown
from datp_tasks.api.pages import Moment
from datp_tasks.api.routing import grants, json_response, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import CONFLICT
from datp_tasks.api.webhooks import delivery_json
from datp_tasks.errors import WebhookUnknown
from datp_tasks.model.rights import check_endpoints, check_read
from datp_tasks.record.database import translate_outage
from datp_tasks.record.webhook_endpoints import Endpoint
from datp_tasks.record.webhooks import Delivery
from datp_tasks.webhooks.endpoint_service import EndpointService

routes = router("/v1", "webhook-endpoints")

Id = Annotated[str, Path(alias="id", max_length=100)]
URL_CHARS_MAX = 2_000
TYPES_MAX = 20


class EndpointIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str = Field(max_length=URL_CHARS_MAX)
    types: list[str] = Field(
        [], max_length=TYPES_MAX, description="Empty: all but `payee.completed`."
    )
    description: str = Field("", max_length=500)
    owner: str | None = Field(None, max_length=64, description="For operators: of whom.")


class EndpointChange(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str | None = Field(None, max_length=URL_CHARS_MAX)
    types: list[str] | None = Field(None, max_length=TYPES_MAX)
    description: str | None = Field(None, max_length=500)
    enabled: bool | None = None


class ReplayIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    since: Moment = Field(alias="from")
    until: Moment = Field(alias="to")


class RotateIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    overlap_s: float | None = Field(
        None, alias="overlapSeconds", ge=0, le=31_622_400, description="The old one signs, too."
    )


class EndpointReplayShown(BaseModel):
    since: datetime = Field(alias="from")
    until: datetime = Field(alias="to")


class EndpointShown(Given):
    id: str
    owner: str
    url: str
    types: Annotated[list[str], Field(description="Empty: all but `payee.completed`.")]
    description: str
    enabled: bool
    disabled_reason: str | None
    created_at: datetime
    updated_at: datetime
    replay: Annotated[EndpointReplayShown | None, Field(description="What is told again just now.")]


class EndpointsShown(Paged):
    endpoints: list[EndpointShown]


class EndpointMade(EndpointShown):
    secret: Annotated[str, Field(description="Signs what is sent: shown now and never again.")]


class SecretRotated(Given):
    id: str
    secret: Annotated[str, Field(description="The new one: shown now and never again.")]


class TestSent(Given):
    delivery: Annotated[str, Field(description="Its id, for getDelivery.")]


@routes.get(
    "/webhook-endpoints", operation_id="listWebhookEndpoints", response_model=EndpointsShown
)
@grants("read")
async def find(
    request: Request,
    owner: Annotated[str | None, Query(max_length=64, description="For operators.")] = None,
    limit: Limit = LIMIT_MAX,
    cursor: Cursor = None,
) -> Response:
    """All endpoints, the oldest first."""
    services, caller = services_of(request), caller_of(request)
    check_read(caller.actor)
    whose = owner if caller.is_operator else caller.owner

    after = read_moment_cursor(cursor)

    def read() -> list[Endpoint]:
        with translate_outage():
            store = _service(services).store
            return store.find_all(owner=whose, after=after, rows_max=limit + 1)

    found = await services.threads.run(read)
    page, more = page_of_more(found, lambda each: (each.created_at.isoformat(), each.id), limit)
    return listed("endpoints", [_shown(each) for each in page], cursor=more, limit=limit)


@routes.post(
    "/webhook-endpoints",
    operation_id="addWebhookEndpoint",
    status_code=201,
    response_model=EndpointMade,
)
@grants("endpoints")
@keeps("nothing")
async def add(request: Request, wanted: EndpointIn) -> Response:
    """Register one. The secret that signs for it is in this answer only."""
    services, caller = services_of(request), caller_of(request)
    check_endpoints(caller.actor)
    owner = (wanted.owner if caller.is_operator else None) or caller.owner

    def make() -> dict[str, Any]:
        with translate_outage():
            made, secret = _service(services).add(
                owner,
                wanted.url,
                types=wanted.types,
                description=wanted.description,
                actor=caller.actor,
            )
        return {**_shown(made), "secret": secret}

    shown = await services.threads.run(make)
    place = {"Location": f"/v1/webhook-endpoints/{shown['id']}"}
    return json_response(shown, 201, headers=place)


@routes.get(
    "/webhook-endpoints/{id}", operation_id="getWebhookEndpoint", response_model=EndpointShown
)
@grants("read")
async def show(request: Request, id: Id) -> Response:
    """One endpoint."""
    services = services_of(request)
    check_read(caller_of(request).actor)
    return json_response(_shown(await services.threads.run(_find, services, id, _owner(request))))


@routes.patch(
    "/webhook-endpoints/{id}", operation_id="changeWebhookEndpoint", response_model=EndpointShown
)
@grants("endpoints")
async def change(request: Request, id: Id, wanted: EndpointChange) -> Response:
    """Change what is named. What waits for one that is disabled is not sent."""
    services, caller = services_of(request), caller_of(request)
    check_endpoints(caller.actor)

    def put() -> Endpoint:
        with translate_outage():
            return _service(services).change(
                id,
                owner=_owner(request),
                url=wanted.url,
                types=wanted.types,
                description=wanted.description,
                enabled=wanted.enabled,
                actor=caller.actor,
            )

    return json_response(_shown(await services.threads.run(put)))


@routes.delete("/webhook-endpoints/{id}", operation_id="removeWebhookEndpoint", status_code=204)
@grants("endpoints")
async def delete(request: Request, id: Id) -> Response:
    """It is told nothing any more, and its secrets are deleted."""
    services, caller = services_of(request), caller_of(request)
    check_endpoints(caller.actor)

    def drop() -> None:
        with translate_outage():
            _service(services).delete(id, owner=_owner(request), actor=caller.actor)

    await services.threads.run(drop)
    return Response(status_code=204)


@routes.post(
    "/webhook-endpoints/{id}/rotate-secret",
    operation_id="rotateWebhookSecret",
    response_model=SecretRotated,
    responses=CONFLICT,
)
@grants("endpoints")
@keeps("nothing")
async def rotate(request: Request, id: Id, wanted: RotateIn | None = None) -> Response:
    """A new secret, in this answer only; the old one signs beside it for a while."""
    services, caller = services_of(request), caller_of(request)
    check_endpoints(caller.actor)
    overlap_s = wanted.overlap_s if wanted else None

    def make() -> str:
        with translate_outage():
            return _service(services).rotate(
                id, owner=_owner(request), overlap_s=overlap_s, actor=caller.actor
            )

    return json_response({"id": id, "secret": await services.threads.run(make)})


@routes.post(
    "/webhook-endpoints/{id}/test",
    operation_id="testWebhookEndpoint",
    status_code=202,
    response_model=TestSent,
)
@grants("endpoints")
async def test(request: Request, id: Id) -> Response:
    """Send an event of the type `endpoint.test`."""
    services, caller = services_of(request), caller_of(request)
    check_endpoints(caller.actor)

    def send() -> str:
        with translate_outage():
            return _service(services).test(id, owner=_owner(request), actor=caller.actor)

    delivery = await services.threads.run(send)
    place = {"Location": f"/v1/webhooks/{delivery}"}
    return json_response({"delivery": delivery}, 202, headers=place)


@routes.post(
    "/webhook-endpoints/{id}/replay",
    operation_id="replayWebhookEvents",
    status_code=202,
    response_model=EndpointShown,
    responses=CONFLICT,
)
@grants("endpoints")
async def replay(request: Request, id: Id, wanted: ReplayIn) -> Response:
    """Tell again of what happened in a time, and of what was not told then."""
    services, caller = services_of(request), caller_of(request)
    check_endpoints(caller.actor)

    def begin() -> Endpoint:
        with translate_outage():
            _service(services).replay(
                id, wanted.since, wanted.until, owner=_owner(request), actor=caller.actor
            )
        return _find(services, id, _owner(request))

    return json_response(_shown(await services.threads.run(begin)), 202)


@routes.get(
    "/webhook-endpoints/{id}/deliveries",
    operation_id="listEndpointDeliveries",
    response_model=DeliveriesShown,
)
@grants("read")
async def deliveries(
    request: Request, id: Id, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """What was sent there, and what became of it, the newest first."""
    services = services_of(request)
    check_read(caller_of(request).actor)

    place = read_cursor(cursor, str)

    def read() -> list[Delivery]:
        endpoint = _find(services, id, _owner(request))
        store = services.webhooks.store
        with translate_outage():
            try:
                before = store.find(place[0], owner=endpoint.owner) if place else None
            except WebhookUnknown:
                raise strange_cursor() from None
            return store.of_endpoint(endpoint.id, before=before, rows_max=limit + 1)

    found = await services.threads.run(read)
    page, more = page_of_more(found, lambda each: (each.id,), limit)
    return listed("webhooks", [delivery_json(each) for each in page], cursor=more, limit=limit)


def _service(services: Services) -> EndpointService:
    return services.webhooks.endpoints


def _owner(request: Request) -> str | None:
    """Whose endpoints the caller may touch; None: those of every owner."""
    caller = caller_of(request)
    return None if caller.is_operator else caller.owner


def _find(services: Services, id: str, owner: str | None) -> Endpoint:
    with translate_outage():
        return _service(services).store.find(id, owner=owner)


def _shown(endpoint: Endpoint) -> dict[str, Any]:
    replay = endpoint.replay
    return {
        "id": endpoint.id,
        "owner": endpoint.owner,
        "url": endpoint.url,
        "types": list(endpoint.types),
        "description": endpoint.description,
        "enabled": endpoint.enabled,
        "disabledReason": endpoint.disabled_reason,
        "createdAt": time_text(endpoint.created_at),
        "updatedAt": time_text(endpoint.updated_at),
        "replay": replay and {"from": time_text(replay.since), "to": time_text(replay.until)},
    }
