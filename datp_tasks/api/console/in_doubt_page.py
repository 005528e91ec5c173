"""In doubt: what waits for a person to say what became of its step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.visit import Pages, Visit
from datp_tasks.api.services import Services

pages = Pages()

ROWS_MAX = 200


def read(services: Services, _: Params) -> Mapping[str, Any]:
    found = services.operator.in_doubt(rows_max=ROWS_MAX + 1)
    return {
        "now_ms": services.live.server_now_ms(),
        "rows": found[:ROWS_MAX],
        "has_more": len(found) > ROWS_MAX,
        "rows_max": ROWS_MAX,
    }


VIEW = LiveView(name="in-doubt", read=read, parts={"in-doubt-rows": "parts/in_doubt_rows.html"})


@pages.page("/in-doubt")
async def in_doubt(visit: Visit) -> Response:
    found = await visit.run(read, visit.services, {})
    return visit.page("in_doubt.html", title="In doubt", live="view=in-doubt", **found)
