"""Metrics: series for operators, and what Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from datp_tasks.api.operator_models import SeriesShown
from datp_tasks.api.process_metrics import Meter
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.services import Services, services_of
from datp_tasks.live.metrics import RESOLUTIONS, Metrics, Slot, summed
from datp_tasks.model.actor import Role
from datp_tasks.observe.prometheus import families
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.database import translate_outage

routes = router("/v1", "operator", role=Role.ADMIN)
#: Totals of all owners: a client could count by them what others do.
scrape_routes = router("", "health", role=Role.VIEWER)

BY = "^(group|pipeline|owner)(,(group|pipeline|owner)){0,2}$"


@routes.get("/metrics", operation_id="getMetrics", response_model=SeriesShown)
@needs(Role.VIEWER)
async def series(
    request: Request,
    resolution: Annotated[
        Literal["fine", "middle", "coarse"],
        Query(description="Slots of 5 s for 5 min, 100 s for 2 h, 1000 s for 24 h."),
    ] = "fine",
    by: Annotated[
        str,
        Query(pattern=BY, description="What counters are told apart by: group, pipeline, owner."),
    ] = "group",
) -> Response:
    """Counters and gauges by slot of time, the oldest first."""
    services = services_of(request)
    names = ["what", *dict.fromkeys(by.split(","))]
    return json_response(await services.threads.run(_series, services, resolution, names))


def _series(services: Services, resolution: str, by: list[str]) -> dict[str, Any]:
    chosen = RESOLUTIONS[resolution]
    slots = services.health.metrics.series(chosen, services.live.server_now_ms() // 1_000)
    return {
        "resolution": resolution,
        "slotSeconds": chosen.slot_s,
        "keptSeconds": chosen.kept_s,
        "slots": [_slot_json(slot, by) for slot in slots],
    }


def _slot_json(slot: Slot, by: list[str]) -> dict[str, Any]:
    counts = [
        {**dict(zip(by, names, strict=True)), "count": number}
        for names, number in sorted(summed(slot, by=by).items())
    ]
    return {"start": slot.start_s, "counts": counts, "gauges": dict(sorted(slot.gauges.items()))}


class _Scraped(Collector):
    def __init__(self, metrics: Metrics, alerts: Alerts, meter: Meter) -> None:
        self._metrics = metrics
        self._alerts = alerts
        self._meter = meter

    def collect(self) -> Iterator[Metric]:
        with translate_outage():
            alerts = self._alerts.open_alerts()
        yield from families(self._metrics, alerts)
        yield from self._meter.registry.collect()


def scrape(metrics: Metrics, alerts: Alerts, meter: Meter) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scraped(metrics, alerts, meter))
    return generate_latest(registry)


@scrape_routes.get("/metrics", operation_id="scrapeMetrics", response_class=PlainTextResponse)
async def scraped(request: Request) -> Response:
    """For Prometheus, with a viewer's key: totals, gauges, open alerts, and what this process
    counts."""
    text = await services_of(request).health.scraped.get()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
