"""The event feed: ten writers, a worker, and streams that are cut and come back at random.

The load is that of `steady`: 200 transactions a second, each committed by itself (in the long run
five at a time), by ten writers at once, run by a worker with two processes. The readers are a
process of their own. Every reader must have every event once and in the same order. The lag is from
the event's own time, which is that of the SQL transaction that wrote it, to its arrival at a
reader, over HTTP. Afterwards one reader reads everything again from the beginning, as fast as it
can.
"""

from __future__ import annotations

import threading
import time
from statistics import quantiles
from typing import Any

import httpx

from benchmarks.bench import Bench
from benchmarks.feed_readers import seen, start
from benchmarks.parts.http import OWNER, Side, served
from benchmarks.process_times import own_s, snapshot
from benchmarks.report import Figures
from datp_tasks import Request

WRITERS = 10
READERS = 4
#: A stream is cut after so many events, on average: about every other second.
CUT_AFTER = 500
#: Accepted and completed.
EVENTS_EACH = 2
GIVE_UP_S = 900.0
BAR_MS = 500.0
#: A writer that is later than this had no CPU left, and the figures are worse for it.
LATE_MS = 250.0


def run(bench: Bench) -> Figures:
    per_s = bench.choose(200, 50)
    transactions = bench.choose(6_000, 400, 50_000)
    # The long run proves that nothing is missed in 100,000 events, also on a machine that is busy.
    together = bench.choose(1, 1, 5)
    bench.engine.start_worker()
    expected = EVENTS_EACH * transactions
    with served(bench) as side, bench.report.progress("events", 2) as step:
        cursor = _latest(side)
        step.doing(f"{expected:,} events to {READERS} readers")
        readers = start(_order(side, cursor, expected, READERS, CUT_AFTER))
        before_s = own_s(snapshot(), side.pid)
        late_ms = _write_all(bench, transactions, per_s, together)
        found = seen(readers, GIVE_UP_S)
        api_us = (own_s(snapshot(), side.pid) - before_s) * 1e6 / (expected * READERS)
        _check(found, expected)
        step.done()
        step.doing("again from the beginning")
        [again] = seen(start(_order(side, cursor, expected, 1, expected)), GIVE_UP_S)
        _check([*found, again], expected)
        step.done()
    if late_ms > LATE_MS:
        bench.report.say(f"The writers were late by up to {late_ms:.0f} ms.")
    return _report(bench, found, again, api_us, per_s)


def _latest(side: Side) -> str:
    key = {"Authorization": f"Bearer {side.key}"}
    url = f"http://127.0.0.1:{side.port}/v1/events?after=latest"
    return str(httpx.get(url, headers=key).json()["nextCursor"])


def _order(side: Side, cursor: str, expected: int, readers: int, cut_after: int) -> dict[str, Any]:
    return {
        "port": side.port,
        "key": side.key,
        "cursor": cursor,
        "expected": expected,
        "readers": readers,
        "cut_after": cut_after,
        "give_up_s": GIVE_UP_S,
    }


def _write_all(bench: Bench, transactions: int, per_s: int, together: int) -> float:
    """Each writer at its part of the rate; how late the latest was."""
    late_ms = [0.0]
    began_s = time.monotonic()

    def write(number: int) -> None:
        for first in range(number * together, transactions, WRITERS * together):
            leaves_s = began_s + first / per_s
            time.sleep(max(0.0, leaves_s - time.monotonic()))
            late_ms.append((time.monotonic() - leaves_s) * 1_000)
            wanted = [
                Request(pipeline="three", input={"n": turn}, owner=OWNER)
                for turn in range(first, first + together)
            ]
            bench.engine.client.submit_many(wanted)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for each in writers:
        each.start()
    for each in writers:
        each.join(GIVE_UP_S)
    return max(late_ms)


def _check(readers: list[dict[str, Any]], expected: int) -> None:
    for number, each in enumerate(readers):
        if (each["events"], each["different"]) != (expected, expected):
            raise AssertionError(
                f"reader {number}: {each['events']} events, {each['different']} different"
            )
        if each["order"] != readers[0]["order"]:
            raise AssertionError(f"reader {number} has another order")


def _report(
    bench: Bench, readers: list[dict[str, Any]], again: dict[str, Any], api_us: float, per_s: int
) -> Figures:
    cuts = quantiles([lag for each in readers for lag in each["lags_ms"]], n=100)
    streams = sum(each["streams"] for each in readers)
    again_per_s = again["events"] / again["seconds"]
    bench.report.table(
        f"Event feed: {readers[0]['events']:,} events of {per_s} transactions a second, "
        f"{READERS} readers, {streams} streams",
        ("", "value"),
        (
            ("from the event to the reader, p50 ms", f"{cuts[49]:.0f}"),
            (f"p99 ms (at most {BAR_MS:.0f})", f"{cuts[98]:.0f}"),
            ("CPU of the API for an event to a reader, µs", f"{api_us:.0f}"),
            ("events a second, read again by one", f"{again_per_s:,.0f}"),
        ),
    )
    return {
        "event_feed_lag_p50_ms": cuts[49],
        "event_feed_lag_p99_ms": cuts[98],
        "event_feed_events_per_s": again_per_s,
        "event_feed_us_per_event": api_us,
    }
