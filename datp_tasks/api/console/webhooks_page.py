"""Webhooks: deliveries by state, one with its attempts, and sending it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.api.problems import not_found
from datp_tasks.api.services import Services
from datp_tasks.errors import WebhookUnknown
from datp_tasks.record.database import translate_outage
from datp_tasks.record.webhooks import Delivery

pages = Pages()

STATES = ("pending", "delivered", "dead", "cancelled")
#: As the URL has them, in the order of the form.
FILTERS = ("state", "owner", "txId")
ROWS_MAX = 50
ENDPOINTS_MAX = 200
TEXT_CHARS_MAX = 200


def read(services: Services, params: Params) -> Mapping[str, Any]:
    given = given_filters(params)
    store = services.webhooks.store
    with translate_outage():
        before = _find(services, params["before"]) if params.get("before") else None
        found = store.deliveries(
            state=given.get("state"),
            owner=given.get("owner"),
            tx_id=given.get("txId"),
            before=before,
            rows_max=ROWS_MAX + 1,
        )
        lag_s = store.lag_s()
        now_ms = services.transactions.record.server_now_ms()
        endpoints = services.webhooks.endpoints.store.find_all(
            owner=given.get("owner"), rows_max=ENDPOINTS_MAX + 1
        )
    rows = found[:ROWS_MAX]
    older = {**given, "before": rows[-1].id} if len(found) > ROWS_MAX else {}
    return {
        "now_ms": now_ms,
        "rows": rows,
        "older": with_query("/webhooks", older) if older else "",
        "lag_s": lag_s,
        "endpoints": endpoints[:ENDPOINTS_MAX],
        "endpoints_max": ENDPOINTS_MAX,
        "more_endpoints": len(endpoints) > ENDPOINTS_MAX,
    }


def given_filters(params: Mapping[str, str]) -> dict[str, str]:
    """Those that say something; a state that does not exist is none."""
    given = {name: params[name].strip()[:TEXT_CHARS_MAX] for name in FILTERS if params.get(name)}
    if given.get("state") not in STATES:
        given.pop("state", None)
    return {name: value for name, value in given.items() if value}


def _find(services: Services, id: str) -> Delivery:
    try:
        return services.webhooks.store.find(id)
    except WebhookUnknown:
        raise not_found("such webhook delivery") from None


VIEW = LiveView(
    name="webhooks",
    read=read,
    parts={
        "webhook-lag": "parts/webhook_lag.html",
        "webhook-rows": "parts/webhook_rows.html",
        "endpoint-rows": "parts/endpoint_rows.html",
    },
    every_s=2.0,
)


@pages.page("/webhooks")
async def webhooks(visit: Visit) -> Response:
    query = dict(visit.request.query_params)
    given, before = given_filters(query), query.get("before", "")
    found = await visit.run(read, visit.services, {**given, "before": before})
    live = "" if before else with_query("", {"view": "webhooks", **given})[1:]
    return visit.page(
        "webhooks.html",
        title="Webhooks",
        live=live,
        given=given,
        states=STATES,
        # Another state of what is filtered for now.
        tabs={each: with_query("/webhooks", {**given, "state": each}) for each in ("", *STATES)},
        **found,
    )


def read_one(services: Services, params: Params) -> Mapping[str, Any]:
    with translate_outage():
        found = _find(services, params["id"])
        attempts = services.webhooks.store.attempts(found.id)
    return {"delivery": found, "attempts": attempts}


DELIVERY_VIEW = LiveView(
    name="webhook", read=read_one, parts={"delivery": "parts/delivery.html"}, every_s=2.0
)


@pages.page("/webhooks/{id}")
async def webhook(visit: Visit) -> Response:
    id = visit.part("id")
    found = await visit.run(read_one, visit.services, {"id": id})
    live = with_query("", {"view": "webhook", "id": id})[1:]
    return visit.page("webhook.html", title=f"Webhook {id}", live=live, **found)


@pages.action("/webhooks/{id}/redeliver", back="/webhooks/{id}")
async def redeliver(visit: Visit) -> Response:
    id, reason = visit.part("id"), visit.reason()

    def send() -> None:
        with translate_outage():
            _find(visit.services, id)
            visit.services.webhooks.redeliver(id, actor=visit.caller.actor, reason=reason)

    await visit.run(send)
    return visit.back_to(f"/webhooks/{id}", "It is due now, with the same id and body.")
