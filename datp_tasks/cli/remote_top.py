"""What `datp top` shows, from the HTTP API."""

from __future__ import annotations

from collections import Counter
from typing import Any

from datp_tasks.cli.remote_calls import Json, RemoteCalls
from datp_tasks.cli.remote_transactions import in_flight_of, moment_ms
from datp_tasks.cli.top import LONGEST, PLOT_SLOTS, RATE_SLOTS, GroupRow, TopView
from datp_tasks.model.status import FINAL


def look_over_http(calls: RemoteCalls) -> TopView:
    """Each part as of a moment of its own: they are several requests."""
    queues, found = calls.get("queues"), calls.get("metrics", by="group")
    nodes = list(calls.pages("nodes"))
    # The last slot is not over, and the meter may not have read the one before.
    full: list[Json] = found["slots"][:-1]
    while full and not full[-1]["counts"] and not full[-1]["gauges"] and len(full) > PLOT_SLOTS:
        full.pop()
    recent = full[-RATE_SLOTS:]
    seconds = found["slotSeconds"] * max(1, len(recent))
    started = Counter[str]()
    for slot in recent:
        for each in slot["counts"]:
            started[each["group"]] += each["count"] if each["what"] == "started" else 0
    flying = calls.get("in-flight", limit=LONGEST)
    return TopView(
        groups=[
            GroupRow(
                name=name,
                nodes=len(own := [each for each in nodes if each["group"] == name]),
                busy=sum(int(_load(each).get("busy", 0)) for each in own),
                slots=sum(int(_load(each).get("slots", 1)) for each in own),
                messages=messages,
                started_per_s=started[name] / seconds,
            )
            for name, messages in sorted(queues["bells"].items())
        ],
        sizes=queues["transactions"],
        rates={
            what: sum(_count(slot, what) for slot in recent) / seconds
            for what in ("queued", "started", "ended")
        },
        ended=[_count(slot, "ended") / found["slotSeconds"] for slot in full[-PLOT_SLOTS:]],
        longest=[in_flight_of(each) for each in flying["inFlight"]],
        alerts=[f"{each['kind']}: {each['summary']}" for each in calls.pages("alerts")],
        now_ms=moment_ms(flying["now"]),
    )


def _load(node: Json) -> dict[str, Any]:
    found = node.get("load")
    return found if isinstance(found, dict) else {}


def _count(slot: Json, what: str) -> int:
    wanted = FINAL if what == "ended" else {what}
    return sum(int(each["count"]) for each in slot["counts"] if each["what"] in wanted)
