"""Handing in many transactions at once: each has its own answer."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import Response
from pydantic import ValidationError

from datp_tasks.api import models
from datp_tasks.api.accepting import Accepted, accept_bulk
from datp_tasks.api.access import Caller
from datp_tasks.api.once import MIXED, external_id_of
from datp_tasks.api.problems import Problem, invalid, mistakes_of, problem_of
from datp_tasks.api.routing import grants, json_response, router
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import NEW, REPEATED, named
from datp_tasks.client import submit
from datp_tasks.client.bulk_transfers import ITEMS_MAX
from datp_tasks.client.requests import Request as Wanted
from datp_tasks.client.requests import Submitted

#: Memory of one bulk request before it is split into transactions.
BULK_BYTES_MAX = 16_777_216
routes = router("/v1", "transactions", bytes_max=lambda _: BULK_BYTES_MAX)


@routes.post(
    "/transactions/bulk",
    operation_id="submitTransactions",
    status_code=NEW,
    response_model=models.BulkOut,
    responses={
        200: {"model": models.BulkOut, "description": "All were accepted before."},
        207: {"model": models.BulkOut, "description": "Some or all were refused."},
    },
)
@grants("submit:<pipeline>")
async def submit_bulk(request: Request, wanted: models.BulkIn) -> Response:
    """Hand in many at once; one that is refused does not hold up the others."""
    services, caller = services_of(request), caller_of(request)
    items = wanted.transactions
    limit = ITEMS_MAX
    if len(items) > limit:
        mistake = {"loc": ("body", "transactions"), "msg": f"at most {limit} are allowed"}
        raise invalid([mistake])
    if len(items) > 1:
        await services.admission.limits.take(caller.owner, cost=len(items) - 1)
    over: Problem | None = None
    try:
        await services.admission.limits.admit(caller.owner, len(items))
    except Problem as error:
        over = error
    names = [external_id_of(request, n) for n in range(len(items))]
    answers = await services.threads.run(_accept_bulk, services, items, names, caller, over)
    if over is not None and all(isinstance(each, Problem) for each in answers):
        raise over
    results = [
        {"index": n, "externalId": _external_id(item), **_result(each)}
        for n, (item, each) in enumerate(zip(items, answers, strict=True))
    ]
    counts = [result["status"] for result in results]
    repeated = counts.count(REPEATED)
    accepted = counts.count(NEW)
    refused = len(results) - accepted - repeated
    answer = {"accepted": accepted, "repeated": repeated, "refused": refused, "results": results}
    return json_response(answer, MIXED if refused else NEW if accepted else REPEATED)


def _external_id(item: Any) -> str | None:
    found = item.get("externalId") if isinstance(item, dict) else None
    return found if isinstance(found, str) else None


def _accept_bulk(
    services: Services,
    items: list[Any],
    names: list[str | None],
    caller: Caller,
    over: Problem | None,
) -> list[Accepted]:
    """Checked one by one, committed together; with `over`, only what was accepted before."""
    owner = caller.owner
    wrong: dict[int, Accepted] = {}
    wanted: list[Wanted] = []
    for number, item in enumerate(items):
        try:
            checked = models.TransactionIn.model_validate(item)
            wanted.append(checked.request(owner, caller.actor, name=names[number]))
        except ValidationError as error:
            wrong[number] = invalid(mistakes_of(error))
            wanted.append(named(item, owner) or Wanted(pipeline="", input={}, owner=owner))
    answers = dict(wrong)
    if over is not None:
        answers = {n: wrong.get(n, over) for n in range(len(items))}
    refused = list(answers)
    before = services.client.accepted_before([wanted[n] for n in refused])
    for n, found in zip(refused, before, strict=True):
        answers[n] = found or answers[n]
    good = [n for n in range(len(items)) if n not in answers]
    batch_max = submit.BATCH_MAX
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
