"""Alerts: what is open, what was closed lately, and closing one with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote as quoted
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.confirming import Confirm, confirm_page
from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.subject_links import page_or_search
from datp_tasks.api.console.visit import Pages, Visit
from datp_tasks.api.problems import not_found
from datp_tasks.api.services import Services
from datp_tasks.record.alerts import Alert
from datp_tasks.record.database import translate_outage

pages = Pages()

ROWS_MAX = 200
RECENT_MAX = 50
RECENT_S = 86_400
NUMBER_DIGITS_MAX = 18


def read(services: Services, _: Params) -> Mapping[str, Any]:
    with translate_outage():
        found = services.health.alerts.open_alerts(rows_max=ROWS_MAX + 1)
        now_ms = services.transactions.record.server_now_ms()
        recent = services.health.alerts.recent(RECENT_S, rows_max=ROWS_MAX)
    cleared = [each for each in recent if each.is_cleared]
    return {
        "now_ms": now_ms,
        "rows": [(each, page_or_search(each.kind, each.subject)) for each in found[:ROWS_MAX]],
        "has_more": len(found) > ROWS_MAX,
        "rows_max": ROWS_MAX,
        "cleared": [
            (each, page_or_search(each.kind, each.subject))
            for each in reversed(cleared[-RECENT_MAX:])
        ],
    }


VIEW = LiveView(
    name="alerts",
    read=read,
    parts={"alert-rows": "parts/alert_rows.html", "cleared-rows": "parts/cleared_rows.html"},
    every_s=2.0,
)


@pages.page("/alerts")
async def alerts(visit: Visit) -> Response:
    found = await visit.run(read, visit.services, {})
    return visit.page("alerts.html", title="Alerts", live="view=alerts", **found)


@pages.page("/alerts/{number}/close")
async def ask_close(visit: Visit) -> Response:
    found: Alert = await visit.run(_open_one, visit.services, _number(visit))
    return confirm_page(
        visit,
        Confirm(
            title=f"Close alert {found.id}",
            says=[
                f"{found.kind}, about {found.subject}: {found.summary}",
                "It leaves the list. If its cause is still there, the system raises it again.",
                "What one person did alone is closed by another person.",
            ],
            act=f"/alerts/{found.id}/close",
            back="/alerts",
            button="Close the alert",
            cli=f"datp clear-alert {quoted(found.kind)} {quoted(found.subject)} --reason '…'",
        ),
    )


@pages.action("/alerts/{number}/close", back="/alerts")
async def close(visit: Visit) -> Response:
    number, reason = _number(visit), visit.reason()
    close_alert = visit.services.operator.approvals.close_alert
    if not await visit.run(close_alert, visit.caller.actor, number, reason=reason):
        raise not_found("open alert with this id")
    return visit.back_to("/alerts", f"Alert {number} is closed.")


def _number(visit: Visit) -> int:
    text = visit.part("number")
    if not (text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX):
        raise not_found("open alert with this id")
    return int(text)


def _open_one(services: Services, number: int) -> Alert:
    with translate_outage():
        found = [each for each in services.health.alerts.open_alerts() if each.id == number]
    if not found:
        raise not_found("open alert with this id")
    return found[0]
