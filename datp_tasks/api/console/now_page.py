"""Now: rates, backlog, what needs a person, what runs for long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.charts import Bars, bars
from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.subject_links import page_or_search
from datp_tasks.api.console.visit import Pages, Visit
from datp_tasks.api.services import Services
from datp_tasks.live.metrics import RESOLUTIONS, Slot, summed
from datp_tasks.live.nodes import Node, live_nodes
from datp_tasks.live.queue_trends import oldest_by_group
from datp_tasks.model.approval import ApprovalState
from datp_tasks.model.status import FINAL, Status
from datp_tasks.record.database import translate_outage

pages = Pages()

LONGEST_MAX = 8
IN_DOUBT_MAX = 5
#: The record raises such an alert with the parking itself.
IN_DOUBT_ALERT = "in-doubt"
ALERTS_MAX = 20
#: Of the front of the line, in which the oldest of each group is looked for.
FIRST_IN_LINE = 200
#: The last slot is not over, and the meter may not have read the one before.
RATE_SLOTS = 3


def read(services: Services, _: Params) -> Mapping[str, Any]:
    live = services.live
    now_ms = live.server_now_ms()
    slots = services.health.metrics.series(RESOLUTIONS["fine"], now_ms // 1_000)
    recent = slots[-1 - RATE_SLOTS : -1]
    seconds = RESOLUTIONS["fine"].slot_s * max(1, len(recent))
    with translate_outage():
        alerts = services.health.alerts.open_alerts(rows_max=ALERTS_MAX + 1)
        waiting = services.operator.approvals.store.page(
            state=ApprovalState.PENDING, rows_max=ALERTS_MAX + 1
        )
        claims = services.ledger.claims.counts()
    sizes = live.sizes()
    # One row for each: what has its alert is not shown a second time.
    told = {each.subject for each in alerts if each.kind == IN_DOUBT_ALERT}
    in_doubt = [
        each
        for each in services.operator.in_doubt(rows_max=IN_DOUBT_MAX + len(told))
        if each.tx_id not in told
    ]
    return {
        "now_ms": now_ms,
        "rates": {
            what: sum(_count(slot, what) for slot in recent) / seconds
            for what in ("queued", "started", "ended")
        },
        "chart": ended_bars(slots[:-1]),
        "sizes": sizes,
        "groups": group_rows(services, recent, seconds, now_ms),
        "alerts": [(each, page_or_search(each.kind, each.subject)) for each in alerts[:ALERTS_MAX]],
        "more_alerts": len(alerts) > ALERTS_MAX,
        "approvals": waiting[:ALERTS_MAX],
        "more_approvals": len(waiting) > ALERTS_MAX,
        "in_doubt": in_doubt[:IN_DOUBT_MAX],
        "longest": services.operator.in_flight(rows_max=LONGEST_MAX),
        "claims": sum(number for claimant, number in claims.items() if claimant),
        "unclaimed": sum(number for claimant, number in claims.items() if not claimant),
    }


def ended_bars(slots: list[Slot]) -> Bars:
    """Ended per slot: those that ended well, and all others above them."""
    good, bad = [], []
    for slot in slots:
        by_what = summed(slot, by=["what"])
        good.append(float(by_what.get((Status.SUCCESS,), 0)))
        bad.append(float(sum(by_what.get((each,), 0) for each in FINAL - {Status.SUCCESS})))
    return bars([slot.start_s for slot in slots], {"success": good, "other": bad})


def _count(slot: Slot, what: str) -> int:
    by_what = summed(slot, by=["what"])
    if what == "ended":
        return sum(by_what.get((status,), 0) for status in FINAL)
    return by_what.get((what,), 0)


def group_rows(
    services: Services,
    recent: list[Slot],
    seconds: int,
    now_ms: int,
    *,
    decided: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """Groups with a live worker, with messages, or `decided` about by an operator."""
    settings, live = services.settings, services.live
    nodes = live_nodes(live.redis, live.keys, now_ms - settings.node_stale_ms)
    gauges = services.health.metrics.gauges()
    oldest = oldest_by_group(live, now_ms, first=FIRST_IN_LINE)
    started = [summed(slot, by=["what", "group"]) for slot in recent]
    known = {name.partition("|")[2] for name in gauges if name.startswith("queue|")} | set(decided)
    return [
        {
            "name": name,
            "nodes": sum(node.group == name for node in nodes),
            "busy": _load(nodes, name, "busy"),
            "slots": _load(nodes, name, "slots"),
            "messages": int(gauges.get(f"queue|{name}", 0)),
            "oldest_s": oldest.get(name),
            "started_per_s": sum(each.get(("started", name), 0) for each in started) / seconds,
        }
        for name in sorted(known | oldest.keys() | {node.group for node in nodes})
    ]


def _load(nodes: list[Node], group: str, what: str) -> int:
    return sum(int(node.load.get(what, 0)) for node in nodes if node.group == group)


VIEW = LiveView(
    name="now",
    read=read,
    parts={
        "now-tiles": "parts/now_tiles.html",
        "now-needs": "parts/now_needs.html",
        "now-chart": "parts/now_chart.html",
        "now-groups": "parts/now_groups.html",
        "now-longest": "parts/now_longest.html",
    },
)


@pages.page("/now")
async def now(visit: Visit) -> Response:
    found = await visit.run(read, visit.services, {})
    return visit.page("now.html", title="Now", live="view=now", **found)
