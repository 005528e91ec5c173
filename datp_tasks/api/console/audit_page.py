"""Audit: who did what, with filters, and whether the chain over it is whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.subject_links import page_of_subject
from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.api.problems import invalid
from datp_tasks.api.services import Services
from datp_tasks.model.actor import Role
from datp_tasks.record.audit_chain import AuditChain, ChainHead, ChainReport
from datp_tasks.record.database import translate_outage

pages = Pages()

ROWS_MAX = 100
TEXT_CHARS_MAX = 300
#: PostgreSQL's bigint has 19 digits.
DIGITS_MAX = 18
#: As the URL has them, in the order of the form.
FILTERS = ("action", "subject", "keyId")
HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


def read(services: Services, given: Mapping[str, str], before: int | None) -> Mapping[str, Any]:
    with translate_outage():
        found = AuditChain(services.transactions.record.engine).actions(
            subject=given.get("subject"),
            key_id=given.get("keyId"),
            action=given.get("action"),
            before=before,
            rows_max=ROWS_MAX + 1,
        )
        rows = found[:ROWS_MAX]
        owners = services.callers.keys.owners({each.key_id for each in rows if each.key_id})
    older = {**given, "before": rows[-1].id} if len(found) > ROWS_MAX else {}
    return {"rows": rows, "owners": owners, "older": with_query("/audit", older) if older else ""}


@pages.page("/audit", role=Role.OPERATOR)
async def audit(visit: Visit) -> Response:
    query = visit.request.query_params
    given = {
        name: query[name].strip()[:TEXT_CHARS_MAX]
        for name in FILTERS
        if query.get(name, "").strip()
    }
    before = query.get("before", "")
    is_number = before.isascii() and before.isdecimal() and len(before) <= DIGITS_MAX
    found = await visit.run(read, visit.services, given, int(before) if is_number else None)
    return visit.page(
        "audit.html",
        title="Audit",
        given=given,
        is_first=not before,
        now_ms=1_000 * await visit.console.sessions.clock.now_s(),
        page_of=page_of_subject,
        **found,
    )


@pages.page("/audit/chain", role=Role.OPERATOR)
async def chain(visit: Visit) -> Response:
    """The verdict; the whole chain is read for it."""
    text = visit.request.query_params.get("head", "").strip()
    expected = None
    if text:
        found = HEAD.fullmatch(text)
        if found is None:
            raise invalid([{"loc": ("head",), "msg": "a head is a number, a colon and 64 digits"}])
        expected = ChainHead(int(found[1]), found[2])
    report: ChainReport = await visit.run(_verify, visit.services, expected)
    return visit.page(
        "audit_chain.html", title="The chain of the audit", report=report, expected=text
    )


def _verify(services: Services, expected: ChainHead | None) -> ChainReport:
    with translate_outage():
        return AuditChain(services.transactions.record.engine).verify(expected)
