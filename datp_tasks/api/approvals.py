"""Routes for what waits for a second person; the requester cannot decide."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.lists import LIMIT, Cursor, Limit, listed, page_of_more, read_cursor
from datp_tasks.api.models import Sent, Text
from datp_tasks.api.once import keeps
from datp_tasks.api.operator_models import ApprovalShown, ApprovalsShown
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.services import caller_of, services_of
from datp_tasks.api.transactions import CONFLICT
from datp_tasks.model.actor import Role
from datp_tasks.model.approval import Approval, ApprovalState
from datp_tasks.model.rights import sees_payloads
from datp_tasks.record.database import translate_outage

routes = router("/v1", "operator", role=Role.APPROVER)

#: PostgreSQL's bigint.
Number = Annotated[int, Path(ge=1, lt=2**63)]


class ApproveIn(Sent):
    note: Annotated[Text, Field(description="What was checked; it is kept.")] = ""


class RejectIn(Sent):
    note: Annotated[Text, Field(min_length=1, description="Why; it is kept.")]


def _is_masked(request: Request) -> bool:
    return not sees_payloads(caller_of(request).actor)


@routes.get("/approvals", operation_id="listApprovals", response_model=ApprovalsShown)
@needs(Role.VIEWER)
async def approvals(
    request: Request,
    state: ApprovalState | None = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """What was asked for, the newest first."""
    services, masked = services_of(request), _is_masked(request)
    place = read_cursor(cursor, int)
    before = None if place is None else place[0]

    def read() -> list[Approval]:
        with translate_outage():
            store = services.operator.approvals.store
            return store.page(state=state, before=before, rows_max=limit + 1)

    found = await services.threads.run(read)
    page, more = page_of_more(found, lambda each: (each.id,), limit)
    shown = [each.to_json(masked=masked) for each in page]
    return listed("approvals", shown, cursor=more, limit=limit)


@routes.get("/approvals/{number}", operation_id="getApproval", response_model=ApprovalShown)
@needs(Role.VIEWER)
async def approval(request: Request, number: Number) -> Response:
    """One request: what is to be done, why, and who said what."""
    services = services_of(request)

    def read() -> Approval:
        with translate_outage():
            return services.operator.approvals.store.one(number)

    found = await services.threads.run(read)
    return json_response(found.to_json(masked=_is_masked(request)))


@routes.post(
    "/approvals/{number}/approve",
    operation_id="approveRequest",
    response_model=ApprovalShown,
    responses=CONFLICT,
)
@keeps("again")
async def approve(request: Request, number: Number, wanted: ApproveIn) -> Response:
    """Agree. The last one whose word is needed makes it happen; the request says whose."""
    services, actor = services_of(request), caller_of(request).actor
    decide = services.operator.approvals.approve
    found = await services.threads.run(decide, number, actor, note=wanted.note)
    return json_response(found.to_json())


@routes.post(
    "/approvals/{number}/reject",
    operation_id="rejectRequest",
    response_model=ApprovalShown,
    responses=CONFLICT,
)
@keeps("again")
async def reject(request: Request, number: Number, wanted: RejectIn) -> Response:
    """Refuse; one rejection ends the request."""
    services, actor = services_of(request), caller_of(request).actor
    decide = services.operator.approvals.reject
    found = await services.threads.run(decide, number, actor, note=wanted.note)
    return json_response(found.to_json())
