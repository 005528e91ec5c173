"""Transactions: a list with typed filters in its URL, saved views, and a live first page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from fastapi.responses import Response
from pydantic import ValidationError

from datp_tasks.api.access import Caller
from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.api.pages import Filter, page_of
from datp_tasks.api.problems import invalid
from datp_tasks.api.services import Services
from datp_tasks.errors import FilterInvalid
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.rights import sees_payloads
from datp_tasks.model.search_attributes import parts_of
from datp_tasks.model.status import Status
from datp_tasks.record.database import translate_outage
from datp_tasks.record.saved_views import VIEWS_MAX, SavedView

pages = Pages()

#: As the URL has them, in the order of the form.
FILTERS = ("status", "pipeline", "owner", "externalId", "attr", "from", "to")
ROWS_MAX = 50
NAME_CHARS_MAX = 60
#: What the field of a browser gives: no zone. Ours is UTC, as everything that is shown.
WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?)?")
#: Reads for all tabs: no payload is shown in a list.
LOOKS = Caller("console", Actor(name="console", role=Role.VIEWER, owner="console"))
#: Also by search attributes, which are parts of payloads: for a person who may see those.
LOOKS_INSIDE = Caller("console", Actor(name="console", role=Role.OPERATOR, owner="console"))


def given_filters(params: Mapping[str, str]) -> dict[str, str]:
    return {name: params[name].strip() for name in FILTERS if params.get(name, "").strip()}


def parsed(given: Mapping[str, str], *, cursor: str | None = None) -> Filter:
    """The filters, checked; a problem that names the one that is wrong."""
    values: dict[str, Any] = dict(given)
    for name in ("from", "to"):
        if WITHOUT_ZONE.fullmatch(values.get(name, "")):
            values[name] += "Z" if "T" in values[name] else "T00:00:00Z"
    # The form has short names for what the API calls by the name of the field.
    times = {"from": "createdAt[gte]", "to": "createdAt[lt]"}
    values = {times.get(name, name): value for name, value in values.items()}
    if "attr" in values:
        found = conditions_of(values.pop("attr"))
        values |= {f"attr.{name}": value for name, value in found.items()}
    try:
        return Filter(**values, limit=ROWS_MAX, cursor=cursor)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False)) from None


def conditions_of(text: str) -> dict[str, str]:
    """`amount>=100, payee=ann` as the API has it: name[operator], and value."""
    try:
        found = [parts_of(each.strip()) for each in text.split(",")]
    except FilterInvalid as error:
        raise invalid([{"loc": ("attr",), "msg": str(error)}]) from None
    conditions: dict[str, str] = {}
    for name, operator, value in found:
        if (key := f"{name}[{operator}]") in conditions:
            text = f"{name} has two conditions of the same kind; write one of them"
            raise invalid([{"loc": ("attr",), "msg": text}])
        conditions[key] = value
    return conditions


def read(services: Services, params: Params, looks: Caller = LOOKS) -> Mapping[str, Any]:
    given = given_filters(params)
    found, cursor = page_of(services, looks, parsed(given, cursor=params.get("cursor")))
    with translate_outage():
        # Not of Redis: the list is there without it.
        now_ms = services.transactions.record.server_now_ms()
    more = with_query("/transactions", {**given, "cursor": cursor}) if cursor else ""
    return {
        "rows": found,
        "more": more,
        "now_ms": now_ms,
        "is_first": "cursor" not in params,
        "query": query_of(given),
    }


VIEW = LiveView(
    name="transactions",
    read=read,
    # Together: the link to older ones begins where the rows above it end.
    parts={"tx-rows": "parts/tx_rows.html", "list-foot": "parts/list_foot.html"},
)


@pages.page("/transactions")
async def transactions(visit: Visit) -> Response:
    query = dict(visit.request.query_params)
    given, cursor = given_filters(query), query.get("cursor")
    trouble = ""
    found: Mapping[str, Any] = {
        "rows": [],
        "more": "",
        "now_ms": 0,
        "is_first": not cursor,
        "query": query_of(given),
    }
    try:
        params = {**given, **({"cursor": cursor} if cursor else {})}
        looks = LOOKS_INSIDE if sees_payloads(visit.caller.actor) else LOOKS
        found = await visit.run(read, visit.services, params, looks)
    except Exception as error:
        trouble = wrong_filter(error)
    views = await visit.run(_views, visit)
    # What is read for all tabs is read without payloads.
    live = (
        ""
        if cursor or trouble or "attr" in given
        else with_query("", {"view": "transactions", **given})[1:]
    )
    return visit.page(
        "transactions.html",
        422 if trouble else 200,
        title="Transactions",
        live=live,
        given=given,
        statuses=[str(status) for status in Status],
        views=[(each, each.query == query_of(given)) for each in views],
        trouble=trouble,
        **found,
    )


def wrong_filter(error: Exception) -> str:
    """What is wrong with the filters; other errors are not about them."""
    members = getattr(error, "members", {})
    mistakes = members.get("errors") if isinstance(members, dict) else None
    if getattr(error, "status_code", 0) != 422:
        raise error
    if not mistakes:
        return str(getattr(error, "detail", error))
    return "; ".join(f"{each['pointer'].removeprefix('#/')}: {each['detail']}" for each in mistakes)


def query_of(given: Mapping[str, str]) -> str:
    return with_query("", given).removeprefix("?")


def _views(visit: Visit) -> list[SavedView]:
    with translate_outage():
        return visit.services.callers.saved_views.of(visit.caller.actor.person)


@pages.action("/views", role=Role.VIEWER, back="/transactions")
async def save_view(visit: Visit) -> Response:
    """Keep the filters under a name, for this person."""
    name = visit.form.get("name", "").strip()
    if not name or not name.isprintable() or len(name) > NAME_CHARS_MAX:
        text = f"a view has a name of at most {NAME_CHARS_MAX} printable characters"
        raise invalid([{"loc": ("name",), "msg": text}])
    given = given_filters(dict(parse_qsl(visit.form.get("query", ""))))
    parsed(given)
    view = SavedView(name, query_of(given))

    def save() -> bool:
        with translate_outage():
            return visit.services.callers.saved_views.save(visit.caller.actor.person, view)

    if not await visit.run(save):
        return visit.back_to(
            "/transactions", trouble=f"You have {VIEWS_MAX} views; drop one first."
        )
    return visit.back_to(with_query("/transactions", given), f"The view {name} is saved.")


@pages.action("/views/forget", role=Role.VIEWER, back="/transactions")
async def forget_view(visit: Visit) -> Response:
    name = visit.form.get("name", "")

    def forget() -> bool:
        with translate_outage():
            return visit.services.callers.saved_views.forget(visit.caller.actor.person, name)

    gone = await visit.run(forget)
    return visit.back_to("/transactions", f"The view {name} is dropped." if gone else "")
