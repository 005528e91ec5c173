"""Routes of transactions: hand in, look, wait, act."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.background import BackgroundTask

from datp_tasks.api import models
from datp_tasks.api.accepting import Accepted, accept_bulk
from datp_tasks.api.access import Caller
from datp_tasks.api.pages import Filter, page_of
from datp_tasks.api.problems import Problem, invalid, mistakes_of, problem_of
from datp_tasks.api.routing import (
    by_key,
    json_response,
    one_transaction,
    refuse_doubled,
    router,
    strict_request,
)
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

NEW, REPEATED = 202, 200
EVENTS_MAX = 1_000
CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"description": "The state of things does not allow it."}
}

TxId = Annotated[str, Path(alias="txId", max_length=100, examples=[models.EXAMPLE_ID])]

one = router("/v1", "transactions")
bulk = router("/v1", "transactions", bytes_max=lambda settings: settings.bulk_bytes_max)


@one.post(
    "/transactions",
    status_code=NEW,
    response_model=models.Accepted,
    responses={
        200: {"model": models.Accepted, "description": "It was accepted before."},
        **CONFLICT,
    },
)
async def submit(request: Request, wanted: models.TransactionIn) -> Response:
    """Hand in a transaction. 202: it is committed and will not be lost. 200: it was before."""
    return await _submit(request, wanted)


async def submit_directly(request: Request) -> Response:
    """The same without the framework, which takes longer for it than everything else together."""
    services = services_of(request)
    caller = await by_key(services, request)
    await services.limits.take(caller.owner)
    if request.scope["query_string"]:
        refuse_doubled(request)
    strict = strict_request(request, caller, one_transaction)
    with services.requests.held(caller.owner):
        try:
            body = await strict.json() if await strict.body() else None
            try:
                wanted = models.TransactionIn.model_validate(body)
            except ValidationError as error:
                await _refuse_used(services, body, caller.owner)
                raise invalid(mistakes_of(error)) from None
            return await _submit(strict, wanted)
        finally:
            strict.release()


async def _submit(request: Request, wanted: models.TransactionIn) -> Response:
    services, caller = services_of(request), caller_of(request)
    asked = in_language(request, wanted.request(caller.owner, caller.actor))
    answer = await hand_in(services, asked)
    return json_response(
        {"txId": answer.tx_id, "status": str(answer.status)},
        REPEATED if answer.duplicate else NEW,
        headers={"Location": f"/v1/transactions/{answer.tx_id}"},
    )


def in_language(request: Request, wanted: Wanted) -> Wanted:
    """With the language that the request's header asks for."""
    given = request.headers.get("accept-language")
    return replace(wanted, language=given) if given else wanted


async def hand_in(services: Services, wanted: Wanted) -> Submitted:
    """Accept one, or raise why not. What was accepted before is found before it is refused."""
    try:
        await services.limits.admit(wanted.owner)
    except Problem as over:
        [before] = await services.threads.run(services.client.accepted_before, [wanted])
        answer: Accepted = before or over
    else:
        answer = await services.accepts.do(wanted)
    if not isinstance(answer, Submitted):
        raise answer
    return answer


async def _refuse_used(services: Services, body: Any, owner: str) -> None:
    """A body that does not fit is another request than the one that has its external id."""
    named = _named(body, owner)
    if named is not None:
        [answer] = await services.threads.run(services.client.accepted_before, [named])
        if isinstance(answer, Exception):
            raise answer


def _named(body: Any, owner: str) -> Wanted | None:
    """No request that was ever accepted, under the external id of a body that does not fit."""
    external_id = body.get("externalId") if isinstance(body, dict) else None
    if not isinstance(external_id, str):
        return None
    return Wanted(pipeline="", input={}, owner=owner, external_id=external_id)


@bulk.post("/transactions/bulk", response_model=models.BulkOut)
async def submit_bulk(request: Request, wanted: models.BulkIn) -> Response:
    """Hand in many at once; one that is refused does not hold up the others."""
    services, caller = services_of(request), caller_of(request)
    items = wanted.transactions
    limit = services.settings.bulk_items_max
    if len(items) > limit:
        mistake = {"loc": ("body", "transactions"), "msg": f"at most {limit} are allowed"}
        raise invalid([mistake])
    if len(items) > 1:
        await services.limits.take(caller.owner, cost=len(items) - 1)
    over: Problem | None = None
    try:
        await services.limits.admit(caller.owner, len(items))
    except Problem as error:
        over = error
    answers = await services.threads.run(_accept_bulk, services, items, caller, over)
    if over is not None and all(isinstance(each, Problem) for each in answers):
        raise over
    results = [_result(each) for each in answers]
    counts = [result["status"] for result in results]
    repeated = counts.count(REPEATED)
    accepted = counts.count(NEW)
    return json_response(
        {
            "accepted": accepted,
            "repeated": repeated,
            "refused": len(results) - accepted - repeated,
            "results": results,
        }
    )


@one.get("/transactions", response_model=models.Page)
async def find(request: Request, wanted: Annotated[Filter, Query()]) -> Response:
    """The newest first. A page may be short: go on while there is a nextCursor."""
    services, caller = services_of(request), caller_of(request)
    check_read(caller.actor)
    found, cursor = await services.threads.run(page_of, services, caller, wanted)
    await note_read(request, "transactions.list", "*", found)
    found = await services.shown_many(caller, found)
    shown = [summary_json(each, caller.actor) for each in found]
    return json_response({"transactions": shown, "nextCursor": cursor})


@one.get("/transactions/{txId}", response_model=models.Transaction)
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
    caller = caller_of(request)
    shown = await services.shown(caller, summary)
    return told(request, summary, summary_json(shown, caller.actor))


@one.get("/transactions/{txId}/events", response_model=models.Events)
async def events(
    request: Request,
    tx_id: TxId,
    after: Annotated[
        int, Query(ge=0, le=2**31 - 1, description="Events up to this one are known.")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=EVENTS_MAX)] = EVENTS_MAX,
) -> Response:
    """What was reported, numbered without a gap; the end, once there is one, is the last.

    With more than `limit` of them, `nextAfter` is the `after` of the next page; else it is null.
    """
    services, caller = services_of(request), caller_of(request)
    check_read(caller.actor)
    summary = await services.look(caller, tx_id)
    await note_read(request, "transaction.events", tx_id, [summary])
    more = await services.threads.run(services.events.list, tx_id, after=after, rows_max=limit + 1)
    found = more[:limit]
    if summary.is_sealed:
        found = await _shown_events(services, caller, summary, found)
    shown = sees_payloads(caller.actor)
    listed = [
        {
            "sequence": each.sequence,
            "kind": each.kind,
            "payload": each.payload if shown else dict(MASK),
            "createdAt": time_text(each.created_at),
        }
        for each in found
    ]
    next_after = found[-1].sequence if len(more) > limit else None
    return json_response({"events": listed, "nextAfter": next_after})


@one.post("/transactions/{txId}/cancel", response_model=models.Transaction, responses=CONFLICT)
async def cancel(request: Request, tx_id: TxId, wanted: models.CancelIn | None = None) -> Response:
    """Take it back: at once if nothing has begun, else after its step, with a rollback."""
    services = services_of(request)
    reason = (wanted or models.CancelIn()).reason
    actor, access, owner = await _access(request, tx_id)
    check_cancel(actor, access, owner)
    cancel = partial(services.client.cancel, tx_id, reason, by=actor)
    summary = await services.shown(caller_of(request), await services.threads.run(cancel))
    return json_response(summary_json(summary, actor))


@one.post("/transactions/{txId}/wake", response_model=models.Woken, responses=CONFLICT)
async def wake(request: Request, tx_id: TxId) -> Response:
    """End a sleep early."""
    services = services_of(request)
    actor, access, owner = await _access(request, tx_id)
    check_wake(actor, access, owner)
    wake = partial(services.client.wake, tx_id, by=actor)
    return json_response({"woken": await services.threads.run(wake)})


@one.put(
    "/transactions/{txId}/switches/{name}",
    response_model=models.Woken,
    responses=CONFLICT,
)
async def set_switch(
    request: Request,
    tx_id: TxId,
    name: Annotated[str, Path(max_length=200)],
    wanted: models.SwitchIn,
) -> Response:
    """Set a switch; a transaction that waits for it wakes up."""
    services = services_of(request)
    actor, access, owner = await _access(request, tx_id)
    check_switch(actor, access, owner, name)
    put = partial(services.client.set_switch, tx_id, name, wanted.value, by=actor)
    return json_response({"woken": await services.threads.run(put)})


async def _shown_events(
    services: Services, caller: Caller, summary: Summary, found: list[Event]
) -> list[Event]:
    if caller.owner != summary.owner:
        return [each.masked() for each in found]
    return await services.threads.run(services.vault.opened_events, summary.tx_id, found)


async def _access(request: Request, tx_id: str) -> tuple[Actor, PipelineAccess, str]:
    """Who asks, what the pipeline of a transaction that it may see says, and whose that is."""
    services, caller = services_of(request), caller_of(request)
    summary = await services.look(caller, tx_id)

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
            services.record.engine,
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
    wait_s = min(wait_s, services.settings.long_poll_s_max)
    if wait_s <= 0:
        return await services.look(caller, tx_id)
    return await services.waiters.news(
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


def _accept_bulk(
    services: Services, items: list[Any], caller: Caller, over: Problem | None
) -> list[Accepted]:
    """Checked one by one, committed together; with `over`, only what was accepted before."""
    owner = caller.owner
    wrong: dict[int, Accepted] = {}
    wanted: list[Wanted] = []
    for number, item in enumerate(items):
        try:
            request = models.TransactionIn.model_validate(item).request(owner, caller.actor)
            wanted.append(request)
        except ValidationError as error:
            wrong[number] = invalid(mistakes_of(error))
            wanted.append(_named(item, owner) or Wanted(pipeline="", input={}, owner=owner))
    answers = dict(wrong)
    if over is not None:
        answers = {n: wrong.get(n, over) for n in range(len(items))}
    refused = list(answers)
    before = services.client.accepted_before([wanted[n] for n in refused])
    for n, found in zip(refused, before, strict=True):
        answers[n] = found or answers[n]
    good = [n for n in range(len(items)) if n not in answers]
    batch_max = services.settings.submit_batch_max
    accepted = accept_bulk(services.client, [wanted[n] for n in good], batch_max=batch_max)
    answers.update(zip(good, accepted, strict=True))
    return [answers[n] for n in range(len(items))]


def _result(answer: Accepted) -> dict[str, Any]:
    if isinstance(answer, Submitted):
        return {
            "status": REPEATED if answer.duplicate else NEW,
            "txId": answer.tx_id,
            "transactionStatus": str(answer.status),
        }
    problem = problem_of(answer)
    return {"status": problem.status_code, "problem": problem.document()}
