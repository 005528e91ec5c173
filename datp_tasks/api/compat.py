"""The original's client API, so that its clients can move without a change.

The original knew no keys. With DATP_API__COMPAT_OWNER set, requests without a key come in as that
owner; else they need one as everywhere.
"""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from datp_tasks.api.access import Caller
from datp_tasks.api.models import Object, Text
from datp_tasks.api.problems import not_found
from datp_tasks.api.routing import by_key, grants, json_response, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import CONFLICT, hand_in, in_language, look, note_read, told
from datp_tasks.build_info import built_at
from datp_tasks.client.requests import Request as Wanted
from datp_tasks.model.actor import Actor
from datp_tasks.model.rights import check_read, sees_payloads
from datp_tasks.model.sealed import MASK
from datp_tasks.model.status import Status
from datp_tasks.record.database import translate_outage
from datp_tasks.record.record_types import Summary

#: What clients of the original expect, who cannot say how long they wait.
LONG_POLL_S = 15.0
LONG = ("long", "longpoll")


async def as_before(services: Services, request: Request) -> Caller:
    owner = services.settings.compat_owner
    if owner and "authorization" not in request.headers:
        actor = Actor(
            name=f"compat {owner}",
            owner=owner,
            request_id=request.state.request_id,
            address=request.client.host if request.client else None,
        )
        return Caller(owner, actor)
    return await by_key(services, request)


routes = router("/datp/1.0", "compatibility", admit=as_before)
open_routes = APIRouter(prefix="/datp/1.0", tags=["health"], redirect_slashes=False)

Reply = Annotated[str | None, Query(max_length=20, description="longpoll waits for the end.")]
TxId = Annotated[str, Path(alias="txId", max_length=100)]


class StartMetadata(BaseModel):
    """The options that have a meaning; others are kept, and shown to steps."""

    model_config = ConfigDict(extra="allow")

    externalId: Annotated[str | None, Field(max_length=255)] = None  # noqa: N815
    webhook: Annotated[str | None, Field(max_length=2_048)] = None
    progressReports: bool = False  # noqa: N815
    pollReplyCancelsWebhook: bool = False  # noqa: N815
    poll: Text | None = None
    reply: Annotated[str | None, Field(max_length=2_048)] = None


class Start(BaseModel):
    metadata: StartMetadata = Field(default_factory=StartMetadata)
    data: Object = Field(default_factory=dict)


class SummaryMetadata(BaseModel):
    owner: str
    txId: str  # noqa: N815
    externalId: str | None  # noqa: N815
    transactionType: str  # noqa: N815
    status: str
    completionTime: str | None  # noqa: N815
    lastUpdated: str | None  # noqa: N815
    notifiedTime: str | None  # noqa: N815
    sequenceOfUpdate: int  # noqa: N815


class OriginalSummary(BaseModel):
    metadata: SummaryMetadata
    progressReport: Object | None  # noqa: N815
    data: Object | None


class HealthCheck(BaseModel):
    subsystem: str
    status: str
    appVersion: str  # noqa: N815
    datpVersion: str  # noqa: N815
    buildTime: str | None  # noqa: N815


@routes.put(
    "/tx/start/{transactionType}",
    operation_id="startOriginal",
    response_model=OriginalSummary,
    responses=CONFLICT,
)
@grants("submit:<pipeline>")
async def start(
    request: Request,
    pipeline: Annotated[str, Path(alias="transactionType", max_length=200)],
    wanted: Start,
) -> Response:
    """Start a transaction; with `poll: long` in its metadata, wait for its end."""
    services, caller = services_of(request), caller_of(request)
    answer = await hand_in(services, in_language(request, _request(pipeline, wanted, caller)))
    options = wanted.metadata
    wait = (options.poll or options.reply or "") in LONG
    return await _reply(request, services, answer.tx_id, wait=wait)


@routes.get("/tx/status/{txId}", operation_id="getOriginal", response_model=OriginalSummary)
@grants("read")
async def status(request: Request, tx_id: TxId, reply: Reply = None) -> Response:
    """The summary of a transaction; with `reply=longpoll`, once it has ended or has news."""
    check_read(caller_of(request).actor)
    return await _reply(request, services_of(request), tx_id, wait=reply in LONG)


@routes.get(
    "/tx/statusByExternalId/{externalId}",
    operation_id="getOriginalByExternalId",
    response_model=OriginalSummary,
)
@grants("read")
async def status_by_external_id(
    request: Request,
    external_id: Annotated[str, Path(alias="externalId", max_length=255)],
    reply: Reply = None,
) -> Response:
    """The same, by the client's own name for it."""
    services, caller = services_of(request), caller_of(request)

    def find() -> Summary | None:
        with translate_outage():
            return services.transactions.record.by_external_id(caller.owner, external_id)

    check_read(caller.actor)
    found = await services.threads.run(find)
    if found is None:
        raise not_found("such transaction")
    return await _reply(request, services, found.tx_id, wait=reply in LONG)


@open_routes.get("/healthcheck", operation_id="checkHealthOriginal", response_model=HealthCheck)
@open_routes.get("/ping", operation_id="pingOriginal", response_model=HealthCheck)
async def healthcheck(request: Request) -> Response:
    """The process lives."""
    ours = version("datp-tasks")
    return json_response(
        {
            "subsystem": "datp",
            "status": "ok",
            "appVersion": ours,
            "datpVersion": ours,
            "buildTime": built_at(),
        }
    )


def _request(pipeline: str, wanted: Start, caller: Caller) -> Wanted:
    options = wanted.metadata
    given = options.model_dump(exclude_unset=True)
    reply = options.reply or ""
    # A URL as `reply` is the older way to ask for a webhook.
    webhook = options.webhook or (reply if reply.startswith("http") else None)
    return Wanted(
        pipeline=pipeline,
        input=wanted.data,
        owner=caller.owner,
        external_id=options.externalId,
        metadata=given or None,
        webhook=webhook,
        progress_reports=options.progressReports,
        cancel_webhook_on_poll=options.pollReplyCancelsWebhook,
        webhook_style="original",
        by=caller.actor,
    )


async def _reply(request: Request, services: Services, tx_id: str, *, wait: bool) -> Response:
    wait_s = LONG_POLL_S if wait else 0
    summary = await look(request, services, tx_id, wait_s=wait_s)
    await note_read(request, "transaction.read", tx_id, [summary])
    caller = caller_of(request)
    updated = summary.completed_at or await services.threads.run(_last_news, services, tx_id)
    shown = original_summary(await services.shown(caller, summary), updated)
    if not sees_payloads(caller.actor):
        shown |= {"progressReport": dict(MASK), "data": dict(MASK)}
    return told(request, summary, shown)


def _last_news(services: Services, tx_id: str) -> datetime | None:
    with translate_outage():
        return services.transactions.events.last_news(tx_id)


def original_summary(summary: Summary, updated: datetime | None) -> dict[str, Any]:
    """In the original's shape; its clients see `queued` as `running`."""
    status = "running" if summary.status is Status.QUEUED else str(summary.status)
    return {
        "metadata": {
            "owner": summary.owner,
            "txId": summary.tx_id,
            "externalId": summary.external_id,
            "transactionType": summary.pipeline,
            "status": status,
            "completionTime": time_text(summary.completed_at),
            "lastUpdated": time_text(updated or summary.created_at),
            "notifiedTime": time_text(summary.notified_at),
            "sequenceOfUpdate": summary.sequence,
        },
        "progressReport": summary.progress,
        "data": summary.output,
    }
