"""Acting on many transactions: a preview with the count and a sample, the count typed, a reason."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from shlex import quote
from typing import cast
from urllib.parse import parse_qsl

from fastapi.responses import Response

from datp_tasks.api.console.transactions_page import (
    conditions_of,
    given_filters,
    parsed,
    query_of,
    wrong_filter,
)
from datp_tasks.api.console.visit import REASON_CHARS_MAX, Pages, Visit, with_query
from datp_tasks.api.problems import invalid, not_found
from datp_tasks.api.services import Services
from datp_tasks.model.actor import Role
from datp_tasks.model.approval import selection_of
from datp_tasks.model.status import Status
from datp_tasks.operator.action_result import ActionResult
from datp_tasks.operator.bulk import Action
from datp_tasks.operator.selection import FILTERS, Where
from datp_tasks.record.record_types import Summary

pages = Pages()

#: In one request; more are done in several, or by the command line.
CHOSEN_MAX = 1_000
SAMPLE = 10
FAILED_MAX = 50
ACTIONS: dict[str, str] = {
    "cancel": "Each is taken back: at once if no step has begun, else after its step, with a "
    "rollback. This cannot be taken back.",
    "wake": "Each that sleeps is woken, and its step is run again with the same input.",
    "retry": "Each goes on now: what sleeps is woken, what is queued is rung again, and what is in "
    "doubt has its step run again.",
}
#: Which transactions an action can do something to.
OPEN = {
    "cancel": {Status.QUEUED, Status.RUNNING, Status.SLEEPING, Status.IN_DOUBT},
    "wake": {Status.SLEEPING},
    "retry": {Status.QUEUED, Status.SLEEPING, Status.IN_DOUBT},
}


def choose(services: Services, action: str, given: Mapping[str, str]) -> list[Summary]:
    """What the filters mean now, and the action can change; one more than may be chosen."""
    if not given:
        raise invalid([{"loc": ("filters",), "msg": "choose at least one; all are never meant"}])
    wanted = parsed({name: value for name, value in given.items() if name != "status"})
    where = where_of(given)
    found = (
        each
        for each in services.operator.choose(where, open_only=True)
        if each.status in OPEN[action]
        and (wanted.created_from is None or each.created_at >= wanted.created_from)
        and (wanted.created_to is None or each.created_at < wanted.created_to)
        and (wanted.external_id is None or each.external_id == wanted.external_id)
    )
    return list(islice(found, CHOSEN_MAX + 1))


def where_of(given: Mapping[str, str]) -> Where:
    status = given.get("status")
    if status is not None and status not in set(Status):
        raise invalid([{"loc": ("status",), "msg": f"{status!r:.50} is no status"}])
    return Where(
        status=Status(status) if status else None,
        pipeline=given.get("pipeline"),
        owner=given.get("owner"),
        attributes=conditions_of(given["attr"]) if "attr" in given else {},
    )


# Search attributes are parts of payloads: a viewer could find them by counting.
@pages.page("/bulk/{action}", role=Role.OPERATOR)
async def preview(visit: Visit) -> Response:
    """How many, which, and what will happen; nothing is done yet."""
    action = _action(visit)
    given = given_filters(dict(visit.request.query_params))
    chosen: list[Summary] = []
    trouble = ""
    try:
        chosen = await visit.run(choose, visit.services, action, given)
    except Exception as error:
        trouble = wrong_filter(error)
    return visit.page(
        "bulk.html",
        422 if trouble else 200,
        title=f"{action.title()} many",
        action=action,
        says=ACTIONS[action],
        given=given,
        query=query_of(given),
        count=len(chosen),
        selection=selection_of(each.tx_id for each in chosen),
        too_many=len(chosen) > CHOSEN_MAX,
        chosen_max=CHOSEN_MAX,
        sample=chosen[:SAMPLE],
        trouble=trouble,
        now_ms=await visit.run(visit.services.live.server_now_ms),
        cli=command_of(action, given),
    )


def command_of(action: str, given: Mapping[str, str]) -> str:
    """The same on the command line, safe to paste; empty if it does not know one of the filters."""
    if not given or not given.keys() <= {*FILTERS, "attr"}:
        return ""
    filters = " ".join(_option(name, value) for name, value in given.items())
    return f"datp bulk {action} {filters} --reason '…'"


def _option(name: str, value: str) -> str:
    """A filter as the command line has it."""
    if name == "attr":
        return " ".join(f"--where {quote(f'attr.{each.strip()}')}" for each in value.split(","))
    return f"--where {quote(f'{name}={value}')}"


@pages.action("/bulk/{action}", back="/transactions")
async def act(visit: Visit) -> Response:
    action = _action(visit)
    given = given_filters(dict(parse_qsl(visit.form.get("query", ""))))
    back = with_query(f"/bulk/{action}", given)
    reason = visit.form.get("reason", "").strip()
    if not reason or len(reason) > REASON_CHARS_MAX:
        text = f"Write a reason, of at most {REASON_CHARS_MAX} characters: the audit keeps it."
        return visit.back_to(back, trouble=text)
    chosen = await visit.run(choose, visit.services, action, given)
    if len(chosen) > CHOSEN_MAX:
        return visit.back_to(back, trouble=f"At most {CHOSEN_MAX:,} at a time: filter more.")
    typed = visit.form.get("count", "").replace(",", "").strip()
    if typed != str(len(chosen)):
        text = f"Nothing was done: you typed {typed!r:.20}, and there are {len(chosen)} now."
        return visit.back_to(back, trouble=text)
    if visit.form.get("selection") != selection_of(each.tx_id for each in chosen):
        text = "Nothing was done: other transactions fit the filters now. Look at them again."
        return visit.back_to(back, trouble=text)
    results = await visit.run(_act, visit, action, given, chosen, reason)
    failed = [each for each in results if not each.ok]
    return visit.page(
        "bulk_done.html",
        title=f"{action.title()} many",
        action=action,
        done=len(results) - len(failed),
        failed=failed[:FAILED_MAX],
        failed_count=len(failed),
        back=with_query("/transactions", given),
    )


def _act(
    visit: Visit, action: str, given: Mapping[str, str], chosen: list[Summary], reason: str
) -> list[ActionResult]:
    act = partial(
        visit.services.operator.act_on_many,
        cast(Action, action),
        where_of(given),
        [each.tx_id for each in chosen],
        reason=reason,
        actor=visit.caller.actor,
    )
    return list(act())


def _action(visit: Visit) -> str:
    action = visit.part("action")
    if action not in ACTIONS:
        raise not_found("such action")
    return action
