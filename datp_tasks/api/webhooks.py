"""Routes of webhook deliveries: what was sent, what could not be, and sending it again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.lists import (
    LIMIT,
    Cursor,
    Limit,
    listed,
    page_of_more,
    read_cursor,
    strange_cursor,
)
from datp_tasks.api.models import Given, Sent
from datp_tasks.api.once import keeps
from datp_tasks.api.operator_models import DeliveriesShown, DeliveryWithAttempts
from datp_tasks.api.problems import forbidden
from datp_tasks.api.routing import grants, json_response, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import CONFLICT
from datp_tasks.errors import WebhookUnknown
from datp_tasks.model.actor import Role
from datp_tasks.model.rights import check_endpoints, check_read
from datp_tasks.record.database import translate_outage
from datp_tasks.record.webhooks import SECRET_OVERLAP_S, Delivery

routes = router("/v1", "webhooks")

Id = Annotated[str, Path(alias="id", max_length=200)]
State = Literal["pending", "delivered", "dead", "cancelled"]


class RotateOwnerIn(Sent):
    overlap_seconds: Annotated[
        float | None, Field(ge=0, le=31_622_400, description="The old one signs, too.")
    ] = None
    owner: Annotated[str | None, Field(max_length=64, description="For an admin: of whom.")] = None


class SecretTimes(Given):
    created_at: datetime
    retired_at: Annotated[datetime | None, Field(description="Until then it signs.")]


class OwnerSecretsShown(Given):
    owner: str
    secrets: Annotated[list[SecretTimes], Field(description="The newest first.")]


class OwnerSecretMade(Given):
    owner: str
    secret: Annotated[str, Field(description="The new one: shown now and never again.")]


@routes.get("/webhooks", operation_id="listDeliveries", response_model=DeliveriesShown)
@grants("read")
async def find(
    request: Request,
    state: State | None = None,
    tx_id: Annotated[str | None, Query(alias="txId", max_length=100)] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Deliveries, the newest first; `state=dead` are those that were given up."""
    services = services_of(request)
    owner = _owner(request)
    place = read_cursor(cursor, str)

    def read() -> list[Delivery]:
        store = services.webhooks.store
        with translate_outage():
            try:
                before = store.find(place[0], owner=owner) if place else None
            except WebhookUnknown:
                raise strange_cursor() from None
            return store.deliveries(
                state=state, owner=owner, tx_id=tx_id, before=before, rows_max=limit + 1
            )

    found = await services.threads.run(read)
    page, more = page_of_more(found, lambda each: (each.id,), limit)
    return listed("webhooks", [delivery_json(each) for each in page], cursor=more, limit=limit)


@routes.get("/webhooks/{id}", operation_id="getDelivery", response_model=DeliveryWithAttempts)
@grants("read")
async def show(request: Request, id: Id) -> Response:
    """One delivery with its last attempts."""
    services = services_of(request)
    return json_response(await services.threads.run(_show, services, id, _owner(request)))


@routes.post(
    "/webhooks/{id}/redeliver",
    operation_id="redeliverWebhook",
    status_code=202,
    response_model=DeliveryWithAttempts,
    responses=CONFLICT,
)
@grants("read")
@keeps("delivery")
async def redeliver(request: Request, id: Id) -> Response:
    """Send it again, with the same id and body and a full number of tries."""
    services, caller = services_of(request), caller_of(request)
    owner = _owner(request)
    if caller.is_operator and not caller.actor.has(Role.OPERATOR):
        raise forbidden(f"This needs a key with the role {Role.OPERATOR}.")

    def send() -> dict[str, Any]:
        with translate_outage():
            services.webhooks.redeliver(id, owner=owner, actor=caller.actor)
        return _show(services, id, owner)

    return json_response(await services.threads.run(send), 202)


@routes.get("/webhook-secret", operation_id="getWebhookSecret", response_model=OwnerSecretsShown)
@grants("endpoints")
async def show_secrets(
    request: Request,
    owner: Annotated[str | None, Query(max_length=64, description="For an admin: of whom.")] = None,
) -> Response:
    """Since when the secrets of an owner sign what goes to the URLs of its transactions. Their
    values are not shown: rotate to get one that you know."""
    services, whose = services_of(request), _whose_secret(request, owner)

    def read() -> list[dict[str, Any]]:
        with translate_outage():
            found = services.webhooks.store.secret_times(whose)
        return [
            {"createdAt": time_text(created), "retiredAt": time_text(retired)}
            for created, retired in found
        ]

    return json_response({"owner": whose, "secrets": await services.threads.run(read)})


@routes.post(
    "/webhook-secret/rotate",
    operation_id="rotateOwnerSecret",
    response_model=OwnerSecretMade,
    responses=CONFLICT,
)
@grants("endpoints")
@keeps("nothing")
async def rotate_secret(request: Request, wanted: RotateOwnerIn | None = None) -> Response:
    """A new secret for the webhooks of transactions that name a URL, in this answer only. The old
    one signs beside it for a while. Endpoints have secrets of their own."""
    services, caller = services_of(request), caller_of(request)
    given = wanted or RotateOwnerIn()
    whose = _whose_secret(request, given.owner)
    overlap_s = SECRET_OVERLAP_S if given.overlap_seconds is None else given.overlap_seconds

    def make() -> str:
        with translate_outage():
            store = services.webhooks.store
            return store.rotate(whose, overlap_s=overlap_s, actor=caller.actor)

    return json_response({"owner": whose, "secret": await services.threads.run(make)})


def _whose_secret(request: Request, owner: str | None) -> str:
    """An owner's own key, or an admin's for any."""
    caller = caller_of(request)
    check_endpoints(caller.actor)
    if not caller.is_operator and owner not in (None, caller.owner):
        raise forbidden("A client's key sees and rotates the secret of its own owner.")
    return owner or caller.owner


def _owner(request: Request) -> str | None:
    """Of whom the caller may see deliveries; None: of every owner."""
    caller = caller_of(request)
    check_read(caller.actor)
    return None if caller.is_operator else caller.owner


def _show(services: Services, id: str, owner: str | None) -> dict[str, Any]:
    store = services.webhooks.store
    with translate_outage():
        delivery = store.find(id, owner=owner)
        attempts = store.attempts(id)
    return {
        **delivery_json(delivery),
        "attempts": [
            {
                "attempt": each.attempt,
                "begunAt": time_text(each.begun_at),
                "endedAt": time_text(each.ended_at),
                "httpStatus": each.http_status,
                "error": each.error,
                "tookMs": each.took_ms,
            }
            for each in attempts
        ],
    }


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "txId": delivery.tx_id,
        "sequence": None if delivery.endpoint_id else delivery.sequence,
        "endpointId": delivery.endpoint_id,
        "kind": delivery.kind,
        "owner": delivery.owner,
        "url": delivery.url,
        "state": delivery.state,
        "attemptCount": delivery.attempts,
        "nextAt": time_text(delivery.next_at) if delivery.state == "pending" else None,
        "held": delivery.held,
        "createdAt": time_text(delivery.created_at),
        "firstAttemptAt": time_text(delivery.first_attempt_at),
        "finishedAt": time_text(delivery.finished_at),
        "lastStatus": delivery.last_status,
        "lastError": delivery.last_error,
    }
