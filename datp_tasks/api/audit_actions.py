"""The audit over HTTP: who did what, with which key, and whether the chain is whole."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response

from datp_tasks.api.lists import LIMIT, Cursor, Limit, listed, page_of_more, read_cursor
from datp_tasks.api.operator_models import AuditActionsShown
from datp_tasks.api.routing import needs, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import services_of
from datp_tasks.model.actor import Role
from datp_tasks.record.audit_chain import AuditChain, Noted
from datp_tasks.record.database import translate_outage

routes = router("/v1", "operator", role=Role.ADMIN)

Name = Annotated[str | None, Query(max_length=300)]


@routes.get("/audit/actions", operation_id="listAuditActions", response_model=AuditActionsShown)
@needs(Role.OPERATOR)
async def actions(
    request: Request,
    subject: Name = None,
    key_id: Annotated[str | None, Query(alias="keyId", max_length=100)] = None,
    action: Name = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Who did what, the newest first; one without a position is not sealed yet."""
    services = services_of(request)
    place = read_cursor(cursor, int)
    before = None if place is None else place[0]

    def read() -> list[Noted]:
        with translate_outage():
            return AuditChain(services.transactions.record.engine).actions(
                subject=subject, key_id=key_id, action=action, before=before, rows_max=limit + 1
            )

    found = await services.threads.run(read)
    page, more = page_of_more(found, lambda each: (each.id,), limit)
    return listed("actions", [noted_json(each) for each in page], cursor=more, limit=limit)


def noted_json(noted: Noted) -> dict[str, Any]:
    return {
        "id": noted.id,
        "at": time_text(noted.created_at),
        "actor": noted.actor,
        "keyId": noted.key_id,
        "requestId": noted.request_id,
        "address": noted.address,
        "action": noted.action,
        "subject": noted.subject,
        "reason": noted.reason,
        "details": noted.details,
        "position": noted.position,
        "hash": noted.hash,
    }
