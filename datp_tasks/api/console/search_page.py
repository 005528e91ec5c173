"""The search box: any id leads to the page of what it names."""

from __future__ import annotations

from fastapi.responses import Response

from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.record.database import translate_outage
from datp_tasks.record.search import Match

pages = Pages()

TEXT_CHARS_MAX = 300
#: Kind -> path of its page.
PLACES = {
    "transaction": "/transactions/{}",
    "approval": "/approvals/{}",
    "pipeline": "/pipelines/{}",
    "batch": "/ledgers/{}",
}


def place_of(match: Match) -> str | None:
    found = PLACES.get(match.kind)
    return None if found is None else found.format(match.id)


@pages.page("/search")
async def search(visit: Visit) -> Response:
    text = visit.request.query_params.get("q", "").strip()
    if not text:
        return visit.back_to("/transactions")
    found: list[Match] = []
    if len(text) <= TEXT_CHARS_MAX:
        found = await visit.run(_anything, visit, text)
    places = {place_of(match) for match in found}
    if len(places) == 1 and None not in places:
        return visit.back_to(str(places.pop()))
    owner = with_query("/transactions", {"owner": text})
    rows = [(match, place_of(match)) for match in found]
    return visit.page("search.html", title="Search", text=text, rows=rows, by_owner=owner)


def _anything(visit: Visit, text: str) -> list[Match]:
    with translate_outage():
        return visit.services.transactions.search.anything(text.removeprefix("#"))
