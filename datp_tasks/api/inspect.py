"""Routes for looking into a transaction and for deciding one in doubt; for operators."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api import operator_models
from datp_tasks.api.etags import check_match, unmoved, wanted_match
from datp_tasks.api.lists import LIMIT_MAX, Cursor, Limit, listed, page_of_all
from datp_tasks.api.models import Object, Sent, Text, Transaction
from datp_tasks.api.once import keeps
from datp_tasks.api.problems import Problem, not_found
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.serializers import line_json, summary_json
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import ACTION, TxId, note_read, show
from datp_tasks.errors import TransactionFinal
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.model.actor import Role
from datp_tasks.record.database import translate_outage
from datp_tasks.transactions.views import view_of_copy

routes = router("/v1", "operator", role=Role.ADMIN)

Reason = Annotated[Text, Field(min_length=1, description="Kept in the audit table.")]


DECIDED: dict[int | str, dict[str, Any]] = {
    200: {"model": Transaction, "description": "It has ended."},
    **ACTION,
}


class ResolveIn(Sent):
    decision: Annotated[
        Literal["done", "redo", "fail"],
        Field(description="What became of the step that is in doubt."),
    ]
    reason: Reason
    break_glass: Annotated[
        bool,
        Field(description="Act alone although the policy wants another person; an alert stays."),
    ] = False
    output: Annotated[Object | None, Field(description="With done: what the step returned.")] = None


class RetryIn(Sent):
    reason: Reason


@routes.get(
    "/transactions/{txId}/state",
    operation_id="getTransactionState",
    response_model=operator_models.StateShown,
)
@needs(Role.OPERATOR)
async def state(request: Request, tx_id: TxId) -> Response:
    """The transaction as the engine sees it: live, or as it was archived."""
    services = services_of(request)
    summary = await services.look(caller_of(request), tx_id)
    await note_read(request, "transaction.state", tx_id, [summary])
    return json_response(await services.threads.run(_state, services, tx_id))


@routes.get(
    "/transactions/{txId}/deltas",
    operation_id="getTransactionJournal",
    response_model=operator_models.JournalShown,
)
@needs(Role.OPERATOR)
async def deltas(request: Request, tx_id: TxId) -> Response:
    """Every recorded change, in order, and whatever does not fit together."""
    services = services_of(request)
    summary = await services.look(caller_of(request), tx_id)
    await note_read(request, "transaction.deltas", tx_id, [summary])
    replay = await services.threads.run(services.operator.replay, tx_id)
    listed = [
        {
            "version": each.version,
            "before": each.before,
            "fence": each.fence,
            "kind": each.kind,
            "extra": each.extra,
            "deltas": [json.loads(line) for line in each.deltas],
        }
        for each in replay.entries
    ]
    return json_response({"txId": tx_id, "entries": listed, "faults": replay.faults})


@routes.get(
    "/transactions/{txId}/logs",
    operation_id="getTransactionLogs",
    response_model=operator_models.LogLinesShown,
)
@needs(Role.OPERATOR)
async def logs(
    request: Request,
    tx_id: TxId,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 200,
    cursor: Annotated[
        str | None, Query(max_length=40, description="Of the last line that is known.")
    ] = None,
) -> Response:
    """What its steps have logged, in the order in which it was recorded.

    Every line has a `cursor`; to follow a transaction, ask again with that of the last line.
    """
    services = services_of(request)
    summary = await services.look(caller_of(request), tx_id)
    await note_read(request, "transaction.logs", tx_id, [summary])
    page = await services.threads.run(
        lambda: services.operator.logs.page(tx_id, after=cursor, rows_max=limit)
    )
    lines = [line_json(each) for each in page.lines]
    return json_response({"txId": tx_id, "lines": lines, "nextCursor": page.next_cursor})


@routes.post(
    "/transactions/{txId}/resolve",
    operation_id="resolveTransaction",
    status_code=202,
    response_model=Transaction | operator_models.ApprovalAsked,
    responses=DECIDED,
)
@needs(Role.OPERATOR)
@keeps("transaction")
async def resolve(request: Request, tx_id: TxId, wanted: ResolveIn) -> Response:
    """Say what became of the step of a transaction that is in doubt; it goes on from there."""
    return await _decide(request, tx_id, wanted)


@routes.post(
    "/transactions/{txId}/retry",
    operation_id="retryTransaction",
    status_code=202,
    response_model=Transaction | operator_models.ApprovalAsked,
    responses=DECIDED,
)
@needs(Role.OPERATOR)
@keeps("transaction")
async def retry(request: Request, tx_id: TxId, wanted: RetryIn) -> Response:
    """Make it go on now: run its step again if that is in doubt, end its sleep, or ring again."""
    services, caller = services_of(request), caller_of(request)
    found = await services.look(caller, tx_id)
    check_match(request, found)
    if found.is_final:
        raise TransactionFinal(f"{tx_id} has ended as {found.status}")
    retry = partial(services.operator.retry, tx_id, only_if=wanted_match(request))
    async with unmoved(request, lambda: services.look(caller, tx_id)):
        done = await services.threads.run(retry, reason=wanted.reason, actor=caller.actor)
    if not done.ok:
        check_match(request, await services.look(caller, tx_id))
        raise Problem(409, "transaction-busy", f"{done.what}.")
    return json_response(summary_json(await services.look(caller, tx_id), caller.actor))


@routes.post(
    "/transactions/{txId}/unmask",
    operation_id="unmaskTransaction",
    response_model=operator_models.UnmaskedTransaction,
)
@needs(Role.ADMIN)
@keeps("nothing")
async def unmask(request: Request, tx_id: TxId, wanted: RetryIn) -> Response:
    """What a sealed transaction holds, and what its errors said; the audit keeps who asked."""
    services, caller = services_of(request), caller_of(request)
    await services.look(caller, tx_id)
    found = await services.threads.run(
        services.operator.unmask, tx_id, actor=caller.actor, reason=wanted.reason
    )
    approvals = [{"id": number, "params": params} for number, params in found.approvals]
    lines = [line_json(each) for each in found.lines]
    more = {"errors": found.errors, "approvals": approvals, "logs": lines}
    return json_response({**summary_json(found.summary, caller.actor), **more})


@routes.get("/in-doubt", operation_id="listInDoubt", response_model=operator_models.DoubtsShown)
@needs(Role.VIEWER)
async def in_doubt(request: Request, limit: Limit = LIMIT_MAX, cursor: Cursor = None) -> Response:
    """What waits for a decision, longest first."""
    services = services_of(request)
    found = await services.threads.run(services.operator.in_doubt)
    page, more = page_of_all(
        found, lambda each: f"{each.since_ms:020d} {each.tx_id}", cursor, limit
    )
    shown = [
        {
            "txId": each.tx_id,
            "place": each.place,
            "stepType": each.step_type,
            "sinceMs": each.since_ms,
            "why": each.why,
        }
        for each in page
    ]
    return listed("transactions", shown, cursor=more, limit=limit)


async def _decide(request: Request, tx_id: str, wanted: ResolveIn) -> Response:
    services, caller = services_of(request), caller_of(request)
    check_match(request, await services.look(caller, tx_id))
    async with unmoved(request, lambda: services.look(caller, tx_id)):
        await services.threads.run(
            services.operator.resolve,
            tx_id,
            wanted.decision,
            reason=wanted.reason,
            output=wanted.output,
            actor=caller.actor,
            break_glass=wanted.break_glass,
            only_if=wanted_match(request),
        )
    return await show(request, tx_id)


def _state(services: Services, tx_id: str) -> dict[str, Any]:
    live = ArchiveFeed(services.live).states([tx_id])[0]
    if live:
        return {"txId": tx_id, "source": "live", **_shown(live)}
    with translate_outage():
        archived = services.transactions.states.load([tx_id])
    if tx_id not in archived:
        raise not_found("state of this transaction yet")
    return {"txId": tx_id, "source": "archive", **_shown(archived[tx_id])}


def _shown(fields: dict[str, str]) -> dict[str, Any]:
    view = view_of_copy(fields)
    return {
        "status": view.status,
        "version": view.version,
        "fence": view.fence,
        "begun": view.begun,
        "group": fields.get("group"),
        "stepType": fields.get("stepType"),
        "place": fields.get("place"),
        "node": fields.get("node"),
        "wakeTimeMs": view.wake_ms,
        "wakeSwitch": view.wake_switch,
        "switches": view.switches,
        "cancel": view.cancel,
        "problem": view.problem,
        "state": json.loads(view.state.to_json()),
    }
