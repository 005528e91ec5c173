"""The search box: any id leads to the page of what it names."""

from __future__ import annotations

from urllib.parse import quote

from fastapi.responses import Response

from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.api.services import Services
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.model.actor import Role
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
    "webhook": "/webhooks/{}",
    "endpoint": "/endpoints/{}",
    "mapping": "/mappings/{}",
    "service": "/ledgers?service={}",
    "group": "/groups/{}",
    # For those who may read the audit.
    "key": "/audit?keyId={}",
}


def place_of(match: Match, role: Role) -> str | None:
    found = PLACES.get(match.kind)
    if found is None or (match.kind == "key" and not role.includes(Role.OPERATOR)):
        return None
    return found.format(quote(match.id, "/"))


@pages.page("/search")
async def search(visit: Visit) -> Response:
    text = visit.request.query_params.get("q", "").strip()
    if not text:
        return visit.back_to("/transactions")
    found: list[Match] = []
    if len(text) <= TEXT_CHARS_MAX:
        found = await visit.run(_anything, visit, text)
    role = visit.caller.actor.role or Role.VIEWER
    places = {place_of(match, role) for match in found}
    if len(places) == 1 and None not in places:
        return visit.back_to(str(places.pop()))
    owner = with_query("/transactions", {"owner": text})
    rows = [(match, place_of(match, role)) for match in found]
    return visit.page("search.html", title="Search", text=text, rows=rows, by_owner=owner)


def _anything(visit: Visit, text: str) -> list[Match]:
    services = visit.services
    with translate_outage():
        found = services.transactions.search.anything(text.removeprefix("#"))
    known = {match.id for match in found if match.kind == "group"}
    groups = _groups_of(services, text) - known
    return found + [Match("group", each, "group of workers") for each in sorted(groups)]


def _groups_of(services: Services, text: str) -> set[str]:
    """A group that no operator has decided about is known by its workers only, as a node is."""
    try:
        nodes = services.node_groups.nodes()
    except RedisError:
        # What SQL knows is found all the same.
        return set()
    return {each.group for each in nodes if text in (each.group, each.name)}
