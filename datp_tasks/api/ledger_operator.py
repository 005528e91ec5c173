"""Routes of ledger services, claims, and what operators decide about batches."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.lists import (
    LIMIT_MAX,
    Cursor,
    Limit,
    listed,
    page_of_more,
    read_cursor,
)
from datp_tasks.api.models import BatchDecided, Sent, Text
from datp_tasks.api.operator import ASKED
from datp_tasks.api.operator_models import ClaimsShown, ServiceShown, ServicesShown
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import caller_of, services_of
from datp_tasks.api.transactions import CONFLICT
from datp_tasks.ledger.batch_types import Claim, Service
from datp_tasks.ledger.kinds import KINDS
from datp_tasks.model.actor import Role
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.record.database import translate_outage

routes = router("/v1", "operator", role=Role.OPERATOR)

ServiceId = Annotated[str, Path(alias="service", max_length=200)]
BatchId = Annotated[str, Path(alias="batchId", max_length=200)]


class ServiceIn(Sent):
    service: Annotated[Text, Field(min_length=1)]
    kind: Annotated[Text, Field(min_length=1, description="One of the kinds of this installation.")]
    url: Annotated[str, Field(max_length=2_048, description="Base address of the ledger.")]
    secret: Annotated[
        Text | None, Field(description="Name of the secret that its requests carry.")
    ] = None


class ReasonIn(Sent):
    reason: Annotated[Text, Field(min_length=1, description="Kept in the audit table.")]


class ResolveBatchIn(ReasonIn):
    state: Literal["COMMITTED", "INVALID"]


@routes.get("/services", operation_id="listServices", response_model=ServicesShown)
@needs(Role.VIEWER)
async def services_list(
    request: Request, limit: Limit = LIMIT_MAX, cursor: Cursor = None
) -> Response:
    """Ledger services by name, and the kinds of ledgers that this installation knows."""
    services = services_of(request)
    after = _after(cursor)

    def read() -> list[Service]:
        with translate_outage():
            return services.ledger.batches.services(after=after or "", rows_max=limit + 1)

    found = await services.threads.run(read)
    page, more = page_of_more(found, lambda each: (each.service_id,), limit)
    shown = [_service_json(each) for each in page]
    return listed("services", shown, cursor=more, limit=limit, kinds=sorted(KINDS))


@routes.post("/services", status_code=201, response_model=ServiceShown)
@needs(Role.ADMIN)
async def add_service(request: Request, wanted: ServiceIn) -> Response:
    """Make a ledger service, or give it another address or secret."""
    services, actor = services_of(request), caller_of(request).actor

    def put() -> Service:
        with translate_outage():
            return services.ledger.intake.add_service(
                wanted.service, kind=wanted.kind, url=wanted.url, secret=wanted.secret, by=actor
            )

    return json_response(_service_json(await services.threads.run(put)), 201)


@routes.get("/claims", operation_id="listClaims", response_model=ClaimsShown)
@needs(Role.VIEWER)
async def claims(
    request: Request,
    service: Annotated[str | None, Query(max_length=200)] = None,
    limit: Limit = LIMIT_MAX,
    cursor: Cursor = None,
) -> Response:
    """Which instance has claimed which service, until when, and what is first in its line."""
    services = services_of(request)
    after = _after(cursor)

    def read() -> list[Claim]:
        with translate_outage():
            return services.ledger.claims.claims(
                rows_max=limit + 1, service_id=service, after=after
            )

    found = await services.threads.run(read)
    page, more = page_of_more(found, lambda each: (each.service_id,), limit)
    return listed("claims", [_claim_json(each) for each in page], cursor=more, limit=limit)


@routes.post(
    "/batches/{service}/{batchId}/park",
    operation_id="parkBatch",
    response_model=BatchDecided,
    responses=CONFLICT,
)
async def park(
    request: Request, service: ServiceId, batch_id: BatchId, wanted: ReasonIn
) -> Response:
    """Keep a batch, and with it the ones behind it, until it is resumed."""
    return await _act(request, "park", service, batch_id, reason=wanted.reason)


@routes.post(
    "/batches/{service}/{batchId}/resume",
    operation_id="resumeBatch",
    response_model=BatchDecided,
    responses=CONFLICT,
)
async def resume(
    request: Request, service: ServiceId, batch_id: BatchId, wanted: ReasonIn
) -> Response:
    """Let a parked batch go on; the ledger is asked first if it may have it already."""
    return await _act(request, "resume", service, batch_id, reason=wanted.reason)


@routes.post(
    "/batches/{service}/{batchId}/resubmit",
    operation_id="resubmitBatch",
    response_model=BatchDecided,
    responses={**CONFLICT, **ASKED},
)
async def resubmit(
    request: Request, service: ServiceId, batch_id: BatchId, wanted: ReasonIn
) -> Response:
    """Send the same bytes again without asking the ledger. 202: another person must agree."""
    return await _act(request, "resubmit", service, batch_id, reason=wanted.reason)


@routes.post(
    "/batches/{service}/{batchId}/resolve",
    operation_id="resolveBatch",
    response_model=BatchDecided,
    responses={**CONFLICT, **ASKED},
)
async def resolve(
    request: Request, service: ServiceId, batch_id: BatchId, wanted: ResolveBatchIn
) -> Response:
    """End a parked batch as it was found to be. 202: another person must agree."""
    to = BatchState(wanted.state)
    return await _act(request, "resolve", service, batch_id, to=to, reason=wanted.reason)


async def _act(request: Request, name: str, service: str, batch_id: str, **given: Any) -> Response:
    services, actor = services_of(request), caller_of(request).actor
    act = partial(getattr(services.ledger.operator, name), service, batch_id, actor=actor, **given)

    def do() -> BatchState:
        with translate_outage():
            found: BatchState = act()
            return found

    state = await services.threads.run(do)
    return json_response({"service": service, "batchId": batch_id, "state": str(state)})


def _after(cursor: str | None) -> str | None:
    """The name of the last service of the page before."""
    place = read_cursor(cursor, str)
    return None if place is None else place[0]


def _service_json(service: Service) -> dict[str, Any]:
    return {
        "service": service.service_id,
        "kind": service.kind,
        "url": service.url,
        "secret": service.secret,
    }


def _claim_json(claim: Claim) -> dict[str, Any]:
    return {
        "service": claim.service_id,
        "claimant": claim.claimant,
        "epoch": claim.epoch,
        "expiresAt": time_text(claim.expiry),
        "isLive": claim.is_live,
        "waiting": claim.waiting,
        "head": claim.head,
        "headState": None if claim.head_state is None else str(claim.head_state),
    }
