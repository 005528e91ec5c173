"""In doubt: what waits for a person to say what became of its step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.visit import Pages, Visit
from datp_tasks.api.services import Services
from datp_tasks.errors import DatpError
from datp_tasks.record.database import translate_outage
from datp_tasks.record.record_types import Summary

pages = Pages()

ROWS_MAX = 200


def read(services: Services, _: Params) -> Mapping[str, Any]:
    found = services.operator.in_doubt(rows_max=ROWS_MAX + 1)
    ids = [each.tx_id for each in found[:ROWS_MAX]]
    with translate_outage():
        stored = services.transactions.record.summaries(ids) if ids else []
    summaries = {each.tx_id: each for each in stored}
    return {
        "now_ms": services.live.server_now_ms(),
        "rows": [
            (each, summary, step_name(services, summary, each.place) if summary else "")
            for each in found[:ROWS_MAX]
            # Without one if PostgreSQL has lost its last commits: a person must learn of it.
            for summary in (summaries.get(each.tx_id),)
        ],
        "has_more": len(found) > ROWS_MAX,
        "rows_max": ROWS_MAX,
    }


def step_name(services: Services, summary: Summary, place: str) -> str:
    """The name that its pipeline gives to the step; empty if it has none, or is not known here."""
    pipeline, _, index = place.rpartition("/")
    if pipeline != summary.pipeline or not index.isdecimal():
        return ""
    try:
        with translate_outage():
            steps = services.catalogue.version(pipeline, summary.version).steps
    except DatpError:
        return ""
    return steps[int(index)].name or "" if int(index) < len(steps) else ""


VIEW = LiveView(name="in-doubt", read=read, parts={"in-doubt-rows": "parts/in_doubt_rows.html"})


@pages.page("/in-doubt")
async def in_doubt(visit: Visit) -> Response:
    found = await visit.run(read, visit.services, {})
    return visit.page("in_doubt.html", title="In doubt", live="view=in-doubt", **found)
