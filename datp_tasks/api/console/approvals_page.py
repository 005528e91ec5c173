"""Approvals: what waits for a second person, and deciding about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.subject_links import page_of_subject
from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.api.problems import not_found
from datp_tasks.api.services import Services
from datp_tasks.model.actor import Role
from datp_tasks.model.approval import Approval, ApprovalState
from datp_tasks.model.rights import sees_payloads
from datp_tasks.record.database import translate_outage

pages = Pages()

ROWS_MAX = 100
#: PostgreSQL's bigint has 19 digits.
DIGITS_MAX = 18


def read(services: Services, params: Params) -> Mapping[str, Any]:
    wanted = params.get("state", "")
    state = ApprovalState(wanted) if wanted in set(ApprovalState) else None
    before = params.get("before", "")
    with translate_outage():
        now_ms = services.transactions.record.server_now_ms()
        found = services.operator.approvals.store.page(
            state=state,
            before=int(before) if before.isdecimal() and len(before) <= DIGITS_MAX else None,
            rows_max=ROWS_MAX + 1,
        )
    return {
        "now_ms": now_ms,
        "state": str(state or ""),
        "states": list(ApprovalState),
        "rows": found[:ROWS_MAX],
        "older": found[ROWS_MAX - 1].id if len(found) > ROWS_MAX else None,
        "page_of": page_of_subject,
    }


VIEW = LiveView(name="approvals", read=read, parts={"approval-rows": "parts/approval_rows.html"})


@pages.page("/approvals")
async def approvals(visit: Visit) -> Response:
    given = visit.request.query_params
    params = {name: given[name] for name in ("state", "before") if name in given}
    found = await visit.run(read, visit.services, params)
    live = with_query("", {"view": "approvals", **params})[1:]
    return visit.page("approvals.html", title="Approvals", live=live, **found)


@pages.page("/approvals/{number}")
async def approval(visit: Visit) -> Response:
    found = await visit.run(_one, visit.services, visit.part("number"))
    actor = visit.caller.actor
    is_own = found.requested_by == actor.person
    has_said = any(each.decided_by == actor.person for each in found.given)
    return visit.page(
        "approval.html",
        title=f"Approval {found.id}",
        approval=found,
        # Payloads are on the page of the transaction, for those who give a reason.
        params=found.for_people(masked=True)["params"],
        shows_reason=sees_payloads(actor) or found.action != "step",
        page=page_of_subject(found.action, found.subject),
        is_own=is_own,
        has_said=has_said,
        is_chosen=not found.persons or actor.person in found.persons,
        may_say=actor.has(found.role),
    )


@pages.action("/approvals/{number}/approve", role=Role.APPROVER, back="/approvals/{number}")
async def approve(visit: Visit) -> Response:
    return await _decide(visit, "approve")


@pages.action("/approvals/{number}/reject", role=Role.APPROVER, back="/approvals/{number}")
async def reject(visit: Visit) -> Response:
    return await _decide(visit, "reject")


async def _decide(visit: Visit, decision: str) -> Response:
    found = await visit.run(_one, visit.services, visit.part("number"))
    store = visit.services.operator.approvals
    decide = store.approve if decision == "approve" else store.reject
    note = visit.form.get("note", "").strip() if decision == "approve" else visit.reason("note")
    ended = await visit.run(decide, found.id, visit.caller.actor, note=note)
    said = {
        ApprovalState.PENDING: "Your word is kept; more are needed.",
        ApprovalState.REJECTED: "Rejected: nothing is done.",
        ApprovalState.EXECUTED: f"Approved and done: {ended.note or 'done'}.",
        ApprovalState.APPROVED: "Approved; it is being carried out.",
    }.get(ended.state, f"It is {ended.state}: {ended.note or ''}")
    return visit.back_to(f"/approvals/{found.id}", said)


def _one(services: Services, text: str) -> Approval:
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise not_found("such approval")
    with translate_outage():
        return services.operator.approvals.store.one(int(text))
