"""Metrics: the series of the meter as charts, with the table behind each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.charts import grouped_bars, line
from datp_tasks.api.console.now_page import ended_bars
from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.api.services import Services
from datp_tasks.live.metrics import RESOLUTIONS, Slot, summed

pages = Pages()

#: Resolution -> what a person calls it.
SPANS = {"fine": "5 minutes", "middle": "2 hours", "coarse": "24 hours"}
#: Gauge -> title and unit.
GAUGES = {
    "list|queuedZ": ("Queued", ""),
    "list|processingZ": ("Running", ""),
    "list|sleepingZ": ("Sleeping", ""),
    "list|exceptionZ": ("In doubt", ""),
    "lag|queue": ("Oldest in the queue", "s"),
    "lag|wake": ("Wake-ups late by", "s"),
    "lag|archive": ("Archiving late by", "s"),
    "lag|webhooks": ("Webhooks late by", "s"),
    "lag|timeouts": ("Timeouts late by", "s"),
    "journal": ("Journal not yet in SQL", ""),
}
STEPS_MAX = 30


def read(services: Services, params: Params) -> Mapping[str, Any]:
    name = params.get("span", "fine")
    span = name if name in SPANS else "fine"
    resolution = RESOLUTIONS[span]
    now_s = services.live.server_now_ms() // 1_000
    # The last slot is not over.
    slots = services.health.metrics.series(resolution, now_s)[:-1]
    starts = [slot.start_s for slot in slots]
    times = services.health.metrics.step_times()
    slowest = sorted(times.items(), key=lambda each: -each[1][1])[:STEPS_MAX]
    return {
        "span": span,
        "spans": SPANS,
        "slot_s": resolution.slot_s,
        "ended": ended_bars(slots),
        "flow": grouped_bars(
            starts,
            {what: [_count(slot, what) for slot in slots] for what in ("queued", "started")},
        ),
        "gauges": [
            (title, unit, line(starts, [slot.gauges.get(gauge) for slot in slots]))
            for gauge, (title, unit) in GAUGES.items()
        ],
        "steps": [
            (place, number, seconds, seconds / number if number else 0.0)
            for place, (number, seconds) in slowest
        ],
    }


def _count(slot: Slot, what: str) -> float:
    return float(summed(slot, by=["what"]).get((what,), 0))


VIEW = LiveView(
    name="metrics", read=read, parts={"metrics-all": "parts/metrics_all.html"}, every_s=2.5
)


@pages.page("/metrics")
async def metrics(visit: Visit) -> Response:
    params = {"span": visit.request.query_params.get("span", "fine")}
    found = await visit.run(read, visit.services, params)
    live = with_query("", {"view": "metrics", "span": found["span"]})[1:]
    return visit.page("metrics.html", title="Metrics", live=live, **found)
