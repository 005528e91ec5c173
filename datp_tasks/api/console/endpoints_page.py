"""Webhook endpoints: registering one, and what an admin does to it; the secret is shown once."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from fastapi.responses import Response

from datp_tasks.api.console.confirming import Confirm, ConfirmField, confirm_page
from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.transactions_page import WITHOUT_ZONE
from datp_tasks.api.console.visit import Pages, Visit, problem_text, with_query
from datp_tasks.api.problems import Problem, invalid, not_found, problem_of
from datp_tasks.api.services import Services
from datp_tasks.errors import WebhookInvalid, WebhookUnknown
from datp_tasks.model.actor import Role
from datp_tasks.model.rights import check_endpoints
from datp_tasks.record.database import translate_outage
from datp_tasks.record.event_feed import TYPES
from datp_tasks.record.webhook_endpoints import Endpoint
from datp_tasks.record.webhooks import SECRET_OVERLAP_S
from datp_tasks.webhooks.endpoint_service import EndpointService

pages = Pages()

DELIVERIES_MAX = 50
URL_CHARS_MAX, OWNER_CHARS_MAX, DESCRIPTION_CHARS_MAX = 2_000, 64, 500
OVERLAP_S_MAX = 31_622_400
DIGITS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAction:
    """One action on an endpoint, as its page names it."""

    button: str
    says: list[str]
    #: Of `datp endpoints`; the id and the fields of the form are put in.
    cli: str
    is_danger: bool = False
    wants_reason: bool = True


ACTIONS = {
    "test": EndpointAction(
        button="Send a test event",
        says=["An event of the type endpoint.test is sent there. It is about no transaction."],
        cli="test {id}",
        wants_reason=False,
    ),
    "rotate": EndpointAction(
        button="Rotate the secret",
        says=[
            "A new secret signs from now on; it is shown once, on the next page.",
            "The old one signs beside it for the time below, so that the receiver can change. A "
            "receiver that does not know the new one by then refuses what it is told.",
        ],
        cli="rotate {id}",
    ),
    "replay": EndpointAction(
        button="Replay",
        says=[
            "It is told again of what happened in the time below, and of what was not told then. "
            "A receiver that keeps to the id of an event does nothing twice."
        ],
        cli="replay {id} --from {from}Z --to {to}Z",
    ),
    "enable": EndpointAction(
        button="Enable",
        says=[
            "It is told of what happens from now on. A replay tells of what happened meanwhile.",
        ],
        cli="set {id} --enable",
    ),
    "disable": EndpointAction(
        button="Disable",
        says=["It is told nothing until it is enabled. What waits for it is cancelled."],
        cli="set {id} --disable",
        is_danger=True,
    ),
    "delete": EndpointAction(
        button="Delete",
        says=[
            "It is told nothing any more, what waits for it is cancelled, and its secrets are "
            "deleted. This cannot be taken back.",
        ],
        cli="delete {id}",
        is_danger=True,
    ),
}


@pages.page("/endpoints/new")
async def ask_new(visit: Visit) -> Response:
    return _form(visit, {"owner": visit.request.query_params.get("owner", "")[:OWNER_CHARS_MAX]})


@pages.action("/endpoints", role=Role.ADMIN)
async def add(visit: Visit) -> Response:
    """As POST /v1/webhook-endpoints."""
    check_endpoints(visit.caller.actor)
    form = visit.form
    owner, url = form.get("owner", "").strip(), form.get("url", "").strip()
    types = [each for each in TYPES if form.get(f"type-{each}") == "yes"]
    if not 0 < len(owner) <= OWNER_CHARS_MAX:
        return _form(visit, form, f"Name the owner, with at most {OWNER_CHARS_MAX} characters.")
    if not 0 < len(url) <= URL_CHARS_MAX:
        return _form(visit, form, f"Write a URL, of at most {URL_CHARS_MAX:,} characters.")

    def make(reason: str) -> tuple[Endpoint, str]:
        with translate_outage():
            return _service(visit.services).add(
                owner,
                url,
                types=types,
                description=form.get("description", "").strip(),
                actor=visit.caller.actor,
                reason=reason,
            )

    try:
        made, secret = await visit.run(make, visit.reason())
    except (WebhookInvalid, Problem) as error:
        problem = problem_of(error)
        if problem.status_code != 422:
            raise
        return _form(visit, form, problem_text(problem))
    return _secret(visit, made, secret, "It is registered, and told of what happens from now on.")


def _form(visit: Visit, given: Mapping[str, str], trouble: str = "") -> Response:
    return visit.page(
        "endpoint_new.html",
        422 if trouble else 200,
        title="Register an endpoint",
        given=given,
        types=TYPES,
        trouble=trouble,
        may_admin=visit.has(Role.ADMIN),
    )


def _secret(visit: Visit, endpoint: Endpoint, secret: str, said: str) -> Response:
    return visit.page(
        "endpoint_secret.html",
        title="Secret of an endpoint",
        endpoint=endpoint,
        secret=secret,
        said=said,
    )


def read(services: Services, params: Params) -> Mapping[str, Any]:
    endpoint = _find(services, params["id"])
    with translate_outage():
        rows = services.webhooks.store.of_endpoint(endpoint.id, rows_max=DELIVERIES_MAX)
        now_ms = services.transactions.record.server_now_ms()
    return {
        "endpoint": endpoint,
        "rows": rows,
        "rows_max": DELIVERIES_MAX,
        "now_ms": now_ms,
    }


VIEW = LiveView(
    name="endpoint",
    read=read,
    parts={"endpoint": "parts/endpoint.html", "webhook-rows": "parts/webhook_rows.html"},
    every_s=2.0,
)


@pages.page("/endpoints/{id}")
async def endpoint(visit: Visit) -> Response:
    id = visit.part("id")
    found = await visit.run(read, visit.services, {"id": id})
    live = with_query("", {"view": "endpoint", "id": id})[1:]
    return visit.page(
        "endpoint.html",
        title=f"Endpoint of {found['endpoint'].owner}",
        live=live,
        actions={name: each for name, each in ACTIONS.items() if not _no(found["endpoint"], name)},
        may_admin=visit.has(Role.ADMIN),
        **found,
    )


def _no(endpoint: Endpoint, action: str) -> str:
    """Why it is not possible now; empty: it is."""
    if action == "enable":
        return "It is enabled already." if endpoint.enabled else ""
    if action in ("disable", "test", "replay") and not endpoint.enabled:
        return "It is disabled."
    return "A replay goes on." if action == "replay" and endpoint.replay else ""


@pages.page("/endpoints/{id}/act/{action}")
async def confirm(visit: Visit) -> Response:
    action = ACTIONS.get(visit.part("action"))
    if action is None:
        raise not_found("such action")
    found: Endpoint = await visit.run(_find, visit.services, visit.part("id"))
    fields = _fields(visit.part("action"), await visit.console.sessions.clock.now_s())
    values = {each.name: each.value for each in fields}
    return confirm_page(
        visit,
        Confirm(
            title=f"{action.button}: endpoint of {found.owner}",
            says=[f"It is about {found.id}, which tells {found.url}.", *action.says],
            act=f"{_place(found.id)}/{visit.part('action')}",
            back=_place(found.id),
            button=action.button,
            cli=f"datp endpoints {action.cli.format(id=shlex.quote(found.id), **values)}",
            role=Role.ADMIN,
            impossible=_no(found, visit.part("action")),
            fields=fields,
            wants_reason=action.wants_reason,
            is_danger=action.is_danger,
        ),
    )


def _fields(action: str, now_s: int) -> list[ConfirmField]:
    if action == "rotate":
        label = "Seconds for which the old secret signs, too"
        return [ConfirmField("overlap_s", label, value=str(int(SECRET_OVERLAP_S)))]
    if action != "replay":
        return []
    now = datetime.fromtimestamp(now_s, UTC).replace(second=0)
    hour_ago = now - timedelta(hours=1)
    return [
        ConfirmField("from", "From (UTC)", "datetime-local", f"{hour_ago:%Y-%m-%dT%H:%M}"),
        ConfirmField("to", "Until (UTC)", "datetime-local", f"{now:%Y-%m-%dT%H:%M}"),
    ]


@pages.action("/endpoints/{id}/test", role=Role.ADMIN, back="/endpoints/{id}")
async def test(visit: Visit) -> Response:
    check_endpoints(visit.caller.actor)
    delivery = await _do(visit, lambda service, id: service.test(id, actor=visit.caller.actor))
    return visit.back_to(f"/webhooks/{quote(delivery, '')}", "The test event is on its way.")


@pages.action("/endpoints/{id}/rotate", role=Role.ADMIN, back="/endpoints/{id}/act/rotate")
async def rotate(visit: Visit) -> Response:
    check_endpoints(visit.caller.actor)
    reason, text = visit.reason(), visit.form.get("overlap_s", "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise invalid([{"loc": ("overlap_s",), "msg": "write a whole number of seconds"}])
    overlap_s = int(text)
    if overlap_s > OVERLAP_S_MAX:
        raise invalid([{"loc": ("overlap_s",), "msg": f"at most {OVERLAP_S_MAX:,} seconds"}])
    # First: a failure after the rotation would leave a secret that was shown to no one.
    found = await visit.run(_find, visit.services, visit.part("id"))
    secret = await _do(
        visit,
        lambda service, id: service.rotate(
            id, overlap_s=overlap_s, actor=visit.caller.actor, reason=reason
        ),
    )
    return _secret(visit, found, secret, f"The old one signs beside it for {overlap_s:,} s more.")


@pages.action("/endpoints/{id}/enable", role=Role.ADMIN, back="/endpoints/{id}/act/enable")
async def enable(visit: Visit) -> Response:
    return await _change(visit, enabled=True, said="It is told again.")


@pages.action("/endpoints/{id}/disable", role=Role.ADMIN, back="/endpoints/{id}/act/disable")
async def disable(visit: Visit) -> Response:
    return await _change(visit, enabled=False, said="It is disabled: it is told nothing.")


async def _change(visit: Visit, *, enabled: bool, said: str) -> Response:
    check_endpoints(visit.caller.actor)
    reason = visit.reason()
    await _do(
        visit,
        lambda service, id: service.change(
            id, enabled=enabled, actor=visit.caller.actor, reason=reason
        ),
    )
    return visit.back_to(_place(visit.part("id")), said)


@pages.action("/endpoints/{id}/replay", role=Role.ADMIN, back="/endpoints/{id}/act/replay")
async def replay(visit: Visit) -> Response:
    check_endpoints(visit.caller.actor)
    reason, since, until = visit.reason(), _moment(visit, "from"), _moment(visit, "to")
    await _do(
        visit,
        lambda service, id: service.replay(
            id, since, until, actor=visit.caller.actor, reason=reason
        ),
    )
    return visit.back_to(_place(visit.part("id")), "The replay has begun.")


@pages.action("/endpoints/{id}/delete", role=Role.ADMIN, back="/endpoints/{id}/act/delete")
async def delete(visit: Visit) -> Response:
    check_endpoints(visit.caller.actor)
    reason = visit.reason()
    await _do(
        visit, lambda service, id: service.delete(id, actor=visit.caller.actor, reason=reason)
    )
    return visit.back_to("/webhooks", "The endpoint is deleted.")


def _moment(visit: Visit, name: str) -> datetime:
    text = visit.form.get(name, "").strip()
    try:
        if not WITHOUT_ZONE.fullmatch(text):
            raise ValueError
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        text = "write a time in UTC, such as 2027-01-31T12:00"
        raise invalid([{"loc": (name,), "msg": text}]) from None


async def _do(visit: Visit, work: Any) -> Any:
    id = visit.part("id")

    def act() -> Any:
        _find(visit.services, id)
        with translate_outage():
            return work(_service(visit.services), id)

    return await visit.run(act)


def _find(services: Services, id: str) -> Endpoint:
    with translate_outage():
        try:
            return _service(services).store.find(id)
        except WebhookUnknown:
            raise not_found("such webhook endpoint") from None


def _service(services: Services) -> EndpointService:
    return services.webhooks.endpoints


def _place(id: str) -> str:
    return f"/endpoints/{quote(id, '')}"
