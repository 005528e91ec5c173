"""Routes of transactions: hand in, look, wait, act."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.background import BackgroundTask

from datp_tasks.api import models
from datp_tasks.api.accepting import Accepted, accept_bulk
from datp_tasks.api.access import Caller
from datp_tasks.api.pages import Filter, page_of
from datp_tasks.api.problems import invalid, mistakes_of, problem_of
from datp_tasks.api.routing import (
    by_key,
    json_response,
    one_transaction,
    router,
    strict_request,
)
from datp_tasks.api.serializers import summary_json, time_text
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.client.requests import Submitted
from datp_tasks.record.events import Event
from datp_tasks.record.operator_actions import record_action
from datp_tasks.record.types import Summary

NEW, REPEATED = 202, 200
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
    strict = strict_request(request, caller, one_transaction)
    body = await strict.json() if await strict.body() else None
    try:
        wanted = models.TransactionIn.model_validate(body)
    except ValidationError as error:
        raise invalid(mistakes_of(error)) from None
    return await _submit(strict, wanted)


async def _submit(request: Request, wanted: models.TransactionIn) -> Response:
    services, caller = services_of(request), caller_of(request)
    await services.limits.admit(caller.owner)
    answer = await services.accepts.do(wanted.request(caller.owner))
    if not isinstance(answer, Submitted):
        raise answer
    return json_response(
        {"txId": answer.tx_id, "status": str(answer.status)},
        REPEATED if answer.duplicate else NEW,
        headers={"Location": f"/v1/transactions/{answer.tx_id}"},
    )


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
    await services.limits.admit(caller.owner, len(items))
    answers = await services.threads.run(_accept_bulk, services, items, caller.owner)
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
    found, cursor = await services.threads.run(page_of, services, caller, wanted)
    found = await services.shown_many(caller, found)
    return json_response(
        {"transactions": [summary_json(each) for each in found], "nextCursor": cursor}
    )


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
    summary = await look(request, services, tx_id, wait_s=wait, after=after)
    shown = await services.shown(caller_of(request), summary)
    return told(request, summary, summary_json(shown))


@one.get("/transactions/{txId}/events", response_model=models.Events)
async def events(request: Request, tx_id: TxId) -> Response:
    """What was reported, numbered without a gap; the end, once there is one, is the last."""
    services = services_of(request)
    caller = caller_of(request)
    summary = await services.look(caller, tx_id)
    found = await services.threads.run(services.events.list, tx_id)
    if summary.is_sealed:
        found = await _shown_events(services, caller, summary, found)
    listed = [
        {
            "sequence": each.sequence,
            "kind": each.kind,
            "payload": each.payload,
            "createdAt": time_text(each.created_at),
        }
        for each in found
    ]
    return json_response({"events": listed})


@one.post("/transactions/{txId}/cancel", response_model=models.Transaction, responses=CONFLICT)
async def cancel(request: Request, tx_id: TxId, wanted: models.CancelIn | None = None) -> Response:
    """Take it back: at once if nothing has begun, else after its step, with a rollback."""
    services = services_of(request)
    reason = (wanted or models.CancelIn()).reason
    await _may_act(request, services, tx_id, "cancel", reason)
    summary = await services.threads.run(services.client.cancel, tx_id, reason)
    return json_response(summary_json(await services.shown(caller_of(request), summary)))


@one.post("/transactions/{txId}/wake", response_model=models.Woken, responses=CONFLICT)
async def wake(request: Request, tx_id: TxId) -> Response:
    """End a sleep early."""
    services = services_of(request)
    await _may_act(request, services, tx_id, "wake")
    return json_response({"woken": await services.threads.run(services.client.wake, tx_id)})


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
    await _may_act(request, services, tx_id, "switch", f"{name} = {wanted.value!r:.100}")
    woken = await services.threads.run(services.client.set_switch, tx_id, name, wanted.value)
    return json_response({"woken": woken})


async def _shown_events(
    services: Services, caller: Caller, summary: Summary, found: list[Event]
) -> list[Event]:
    if caller.owner != summary.owner:
        return [each.masked() for each in found]
    return await services.threads.run(services.vault.opened_events, summary.tx_id, found)


async def _may_act(
    request: Request, services: Services, tx_id: str, action: str, reason: str = ""
) -> None:
    """Owners may do anything with their own; what operators do for others is written down."""
    caller = caller_of(request)
    summary = await services.look(caller, tx_id)
    if summary.owner != caller.owner:
        await services.threads.run(
            record_action,
            services.record.engine,
            actor=caller.actor,
            action=f"transaction.{action}",
            subject=tx_id,
            reason=reason,
        )


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


def _accept_bulk(services: Services, items: list[Any], owner: str) -> list[Accepted]:
    """Checked one by one, committed together."""
    answers: list[Accepted | None] = []
    good = []
    for item in items:
        try:
            good.append(models.TransactionIn.model_validate(item).request(owner))
            answers.append(None)
        except ValidationError as error:
            answers.append(invalid(mistakes_of(error)))
    batch_max = services.settings.submit_batch_max
    accepted = iter(accept_bulk(services.client, good, batch_max=batch_max))
    return [next(accepted) if each is None else each for each in answers]


def _result(answer: Accepted) -> dict[str, Any]:
    if isinstance(answer, Submitted):
        return {
            "status": REPEATED if answer.duplicate else NEW,
            "txId": answer.tx_id,
            "transactionStatus": str(answer.status),
        }
    problem = problem_of(answer)
    return {"status": problem.status_code, "problem": problem.document()}
