"""Timeouts: what expires next, and how far behind the handler is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.visit import Pages, Visit
from datp_tasks.api.services import Services
from datp_tasks.record.database import translate_outage
from datp_tasks.record.timeouts import LAG_ALERT_S

pages = Pages()

ROWS_MAX = 100


def read(services: Services, _: Params) -> Mapping[str, Any]:
    store = services.transactions.timeouts
    with translate_outage():
        peek, standing, rows = store.peek(), store.standing(), store.next_due(ROWS_MAX)
    limit_s = LAG_ALERT_S
    return {
        "peek": peek,
        "standing": standing,
        "rows": rows,
        "rows_max": ROWS_MAX,
        "limit_s": limit_s,
        "is_behind": peek.lag_s > limit_s,
    }


VIEW = LiveView(
    name="timeouts",
    read=read,
    parts={"timeout-tiles": "parts/timeout_tiles.html", "timeout-rows": "parts/timeout_rows.html"},
    every_s=2.0,
)


@pages.page("/timeouts")
async def timeouts(visit: Visit) -> Response:
    found = await visit.run(read, visit.services, {})
    return visit.page("timeouts.html", title="Timeouts", live="view=timeouts", **found)
