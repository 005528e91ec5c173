"""Routes of transactions: hand in, look, wait, act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query, Request
from fastapi.responses import Response
from starlette.background import BackgroundTask

from datp_tasks.api import models, waiting
from datp_tasks.api.accepting import Accepted
from datp_tasks.api.access import Caller
from datp_tasks.api.body import header_of
from datp_tasks.api.etags import check_match, etag_of, unless_same, unmoved, wanted_match
from datp_tasks.api.lists import Cursor, listed, make_cursor, read_cursor
from datp_tasks.api.once import external_id_of, keeps
from datp_tasks.api.pages import Filter, page_of
from datp_tasks.api.problems import Problem
from datp_tasks.api.routing import Body, grants, json_response, reads, router
from datp_tasks.api.serializers import summary_json, time_text
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.client.requests import Request as Wanted
from datp_tasks.client.requests import Submitted
from datp_tasks.model.actor import Actor
from datp_tasks.model.pipeline_access import PipelineAccess
from datp_tasks.model.rights import (
    check_cancel,
    check_read,
    check_switch,
    check_wake,
    sees_payloads,
)
from datp_tasks.model.sealed import MASK
from datp_tasks.record.database import translate_outage
from datp_tasks.record.events import Event
from datp_tasks.record.operator_actions import record_action
from datp_tasks.record.record_types import Summary

T = TypeVar("T")

NEW, REPEATED = 202, 200
EVENTS_MAX = 1_000
CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"description": "The state of things does not allow it."}
}
#: Of what is done to a transaction.
ACTION = {**CONFLICT, 412: {"description": "It is not as `If-Match` says any more."}}

TxId = Annotated[str, Path(alias="txId", max_length=100, examples=[models.EXAMPLE_ID])]

routes = router("/v1", "transactions")


async def _refuse_used(request: Request, body: Any) -> None:
    """A body that does not fit is another request than the one that has its external id."""
    services = services_of(request)
    used = named(body, caller_of(request).owner)
    if used is not None:
        [answer] = await services.threads.run(services.client.accepted_before, [used])
        if isinstance(answer, Exception):
            raise answer


@routes.post(
    "/transactions",
    operation_id="submitTransaction",
    status_code=NEW,
    response_model=models.Accepted,
    responses={
        200: {"model": models.Accepted, "description": "It was accepted before."},
        **CONFLICT,
    },
)
@grants("submit:<pipeline>")
@reads(Body(models.TransactionIn, on_misfit=_refuse_used))
async def submit(request: Request, wanted: models.TransactionIn) -> Response:
    """Hand in a transaction. 202: it is committed and will not be lost. 200: it was before."""
    services, caller = services_of(request), caller_of(request)
    name = external_id_of(request)
    trace = getattr(request.state, "traceparent", None)
    asked = wanted.request(caller.owner, caller.actor, name=name, trace=trace)
    answer = await hand_in(services, in_language(request, asked))
    return json_response(
        {"txId": answer.tx_id, "status": str(answer.status)},
        REPEATED if answer.duplicate else NEW,
        headers={"Location": f"/v1/transactions/{answer.tx_id}"},
    )


def in_language(request: Request, wanted: Wanted) -> Wanted:
    """With the language that the request's header asks for."""
    given = header_of(request, b"accept-language")
    return replace(wanted, language=given) if given else wanted


async def hand_in(services: Services, wanted: Wanted) -> Submitted:
    """Accept one, or raise why not. What was accepted before is found before it is refused."""
    try:
        await services.admission.limits.admit(wanted.owner)
    except Problem as over:
        [before] = await services.threads.run(services.client.accepted_before, [wanted])
        answer: Accepted = before or over
    else:
        answer = await services.shared.accepts.do(wanted)
    if not isinstance(answer, Submitted):
        raise answer
    return answer


def named(body: Any, owner: str) -> Wanted | None:
    """No request that was ever accepted, under the external id of a body that does not fit."""
    external_id = body.get("externalId") if isinstance(body, dict) else None
    if not isinstance(external_id, str):
        return None
    return Wanted(pipeline="", input={}, owner=owner, external_id=external_id)


@routes.get("/transactions", operation_id="listTransactions", response_model=models.Page)
@grants("read")
async def find(request: Request, wanted: Annotated[Filter, Query()]) -> Response:
    """The newest first, or as `order` says. A page may be short: go on while it `hasMore`."""
    services, caller = services_of(request), caller_of(request)
    check_read(caller.actor)
    found, cursor = await services.threads.run(page_of, services, caller, wanted)
    await note_read(request, "transactions.list", "*", found)
    found = await services.shown_many(caller, found)
    shown = [summary_json(each, caller.actor) for each in found]
    return listed("transactions", shown, cursor=cursor, limit=wanted.limit)


@routes.get(
    "/transactions/{txId}",
    operation_id="getTransaction",
    response_model=models.Transaction,
    responses={304: {"description": "It is as `If-None-Match` says."}},
)
@grants("read")
async def status(
    request: Request,
    tx_id: TxId,
    wait: Annotated[
        float, Query(ge=0, le=86_400, description="Seconds to wait for news, up to a limit.")
    ] = 0,
    after: Annotated[
        int | None, Query(ge=0, le=2**31 - 1, description="Events up to this one are known.")
    ] = None,
) -> Response:
    """A transaction as of now; or, with `wait`, once it has ended or has a new event.

    Without news the answer comes when the time is over, with the status as it is then.
    """
    services = services_of(request)
    check_read(caller_of(request).actor)
    summary = await look(request, services, tx_id, wait_s=wait, after=after)
    await note_read(request, "transaction.read", tx_id, [summary])
    return unless_same(request, summary, told(request, summary, await _shown(request, summary)))


@routes.get(
    "/transactions/{txId}/events",
    operation_id="listTransactionEvents",
    response_model=models.Events,
)
@grants("read")
async def events(
    request: Request,
    tx_id: TxId,
    after: Annotated[
        int, Query(ge=0, le=2**31 - 1, description="Events up to this one are known.")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=EVENTS_MAX)] = EVENTS_MAX,
    cursor: Cursor = None,
) -> Response:
    """What was reported, numbered without a gap; the end, once there is one, is the last."""
    services, caller = services_of(request), caller_of(request)
    place = read_cursor(cursor, int)
    after = after if place is None else place[0]
    check_read(caller.actor)
    summary = await services.look(caller, tx_id)
    await note_read(request, "transaction.events", tx_id, [summary])
    more = await services.threads.run(
        services.transactions.events.list, tx_id, after=after, rows_max=limit + 1
    )
    found = more[:limit]
    if summary.is_sealed:
        found = await _shown_events(services, caller, summary, found)
    shown = sees_payloads(caller.actor)
    shown_events = [
        {
            "sequence": each.sequence,
            "kind": each.kind,
            "payload": each.payload if shown else dict(MASK),
            "createdAt": time_text(each.created_at),
        }
        for each in found
    ]
    next_cursor = make_cursor(found[-1].sequence) if len(more) > limit else None
    return listed("events", shown_events, cursor=next_cursor, limit=limit)


@routes.post(
    "/transactions/{txId}/cancel",
    operation_id="cancelTransaction",
    status_code=202,
    response_model=models.Transaction,
    responses={200: {"model": models.Transaction, "description": "It has ended."}, **ACTION},
)
@grants("cancel")
@keeps("transaction")
async def cancel(request: Request, tx_id: TxId, wanted: models.CancelIn | None = None) -> Response:
    """Take it back: at once if nothing has begun, else after its step, with a rollback."""
    services = services_of(request)
    reason = (wanted or models.CancelIn()).reason
    actor, access, owner = await access_of(request, tx_id)
    check_cancel(actor, access, owner)
    return await answer_with(
        request, await _acted(request, tx_id, partial(services.client.cancel, tx_id, reason), actor)
    )


@routes.post(
    "/transactions/{txId}/wake",
    operation_id="wakeTransaction",
    response_model=models.Woken,
    responses=ACTION,
)
@grants("wake")
async def wake(request: Request, tx_id: TxId) -> Response:
    """End a sleep early."""
    services = services_of(request)
    actor, access, owner = await access_of(request, tx_id)
    check_wake(actor, access, owner)
    wake = partial(services.client.wake, tx_id)
    return json_response({"woken": await _acted(request, tx_id, wake, actor)})


@routes.put(
    "/transactions/{txId}/switches/{name}",
    operation_id="setSwitch",
    response_model=models.Woken,
    responses=ACTION,
)
@grants("switch:<name>")
async def set_switch(
    request: Request,
    tx_id: TxId,
    name: Annotated[str, Path(max_length=200)],
    wanted: models.SwitchIn,
) -> Response:
    """Set a switch; a transaction that waits for it wakes up."""
    services = services_of(request)
    actor, access, owner = await access_of(request, tx_id)
    check_switch(actor, access, owner, name)
    put = partial(services.client.set_switch, tx_id, name, wanted.value)
    return json_response({"woken": await _acted(request, tx_id, put, actor)})


async def _shown(request: Request, summary: Summary) -> dict[str, Any]:
    services, caller = services_of(request), caller_of(request)
    return summary_json(await services.shown(caller, summary), caller.actor)


async def answer_with(request: Request, summary: Summary) -> Response:
    """The transaction after an action: 202 while the work that it asked for goes on."""
    status = 200 if summary.is_final else 202
    return json_response(await _shown(request, summary), status, {"ETag": etag_of(summary)})


async def show(request: Request, tx_id: str) -> Response:
    """A transaction as of now, for an action that was done before."""
    return await answer_with(request, await services_of(request).look(caller_of(request), tx_id))


async def _shown_events(
    services: Services, caller: Caller, summary: Summary, found: list[Event]
) -> list[Event]:
    if caller.owner != summary.owner:
        return [each.masked() for each in found]
    return await services.threads.run(
        services.transactions.vault.opened_events, summary.tx_id, found
    )


async def _acted(request: Request, tx_id: str, act: Callable[..., T], actor: Actor) -> T:
    """Do it, if the transaction is still as `If-Match` says when it is done."""
    services, caller = services_of(request), caller_of(request)
    async with unmoved(request, lambda: services.look(caller, tx_id)):
        do = partial(act, by=actor, only_if=wanted_match(request))
        return await services.threads.run(do)


async def access_of(request: Request, tx_id: str) -> tuple[Actor, PipelineAccess, str]:
    """Who asks, what the pipeline of a transaction that it may see says, and whose that is."""
    services, caller = services_of(request), caller_of(request)
    summary = await services.look(caller, tx_id)
    check_match(request, summary)

    def pinned() -> PipelineAccess:
        with translate_outage():
            return services.catalogue.version(summary.pipeline, summary.version).access

    return caller.actor, await services.threads.run(pinned), summary.owner


async def note_read(request: Request, action: str, subject: str, shown: Sequence[Summary]) -> None:
    """What an operator saw of other owners is written down before it is shown."""
    services, caller = services_of(request), caller_of(request)
    others = [each.tx_id for each in shown if each.owner != caller.owner]
    if others and sees_payloads(caller.actor):
        note = partial(
            record_action,
            services.transactions.record.engine,
            actor=caller.actor,
            action=action,
            subject=subject,
            reason=None,
            details=None if others == [subject] else {"txIds": others},
        )
        await services.threads.run(note)


async def look(
    request: Request, services: Services, tx_id: str, *, wait_s: float, after: int | None = None
) -> Summary:
    """Now, or after news."""
    caller = caller_of(request)
    wait_s = min(wait_s, waiting.LONG_POLL_S_MAX)
    if wait_s <= 0:
        return await services.look(caller, tx_id)
    return await services.waits.polls.news(
        request, tx_id, lambda: services.look(caller, tx_id), wait_s=wait_s, after=after
    )


def told(request: Request, summary: Summary, content: Any) -> Response:
    """An answer after which the client knows what has happened; that is written down."""
    response = json_response(content)
    is_news = summary.notified_at is None or summary.cancel_webhook_on_poll
    # An operator who looks is not the client who waits for it.
    if summary.sequence and is_news and caller_of(request).owner == summary.owner:
        # After the answer is out: one that never left must not keep the webhook from telling.
        response.background = BackgroundTask(services_of(request).note_seen, summary)
    return response
