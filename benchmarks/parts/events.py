"""The event feed: ten writers, a worker, and streams that are cut and come back at random.

Every reader must have every event once and in the same order. The lag is from the event's own time
to its arrival at a reader, over HTTP, while the worker runs what the writers hand in.
"""

from __future__ import annotations

import json
import random
import threading
import time
from datetime import datetime
from statistics import quantiles

import httpx

from benchmarks.bench import Bench
from benchmarks.parts.http import OWNER, Side, served
from benchmarks.report import Figures
from datp_tasks import Request

WRITERS = 10
READERS = 4
#: Handed in together by one writer.
TOGETHER = 20
#: A stream is cut after so many events, on average.
CUT_AFTER = 2_000
#: Accepted and completed.
EVENTS_EACH = 2
GIVE_UP_S = 600.0
BAR_MS = 500.0


class Reader(threading.Thread):
    def __init__(self, side: Side, cursor: str, expected: int, number: int) -> None:
        super().__init__(name=f"reader {number}", daemon=True)
        self._side = side
        self._cursor = cursor
        self._expected = expected
        self._rng = random.Random(number)
        self.seen: list[str] = []
        self.lags_ms: list[float] = []
        self.streams = 0

    def run(self) -> None:
        give_up_s = time.monotonic() + GIVE_UP_S
        while len(self.seen) < self._expected and time.monotonic() < give_up_s:
            self.streams += 1
            self._follow(self._rng.randint(1, 2 * CUT_AFTER))

    def _follow(self, events_max: int) -> None:
        headers = {
            "Authorization": f"Bearer {self._side.key}",
            "Accept": "text/event-stream",
            "Last-Event-ID": self._cursor,
        }
        url = f"http://127.0.0.1:{self._side.port}/v1/events"
        last = ""
        with httpx.stream("GET", url, headers=headers, timeout=60) as response:
            for line in response.iter_lines():
                if line.startswith("id: "):
                    last = line[4:]
                elif line.startswith("data: "):
                    event = json.loads(line[6:])
                    lag_s = time.time() - datetime.fromisoformat(event["timestamp"]).timestamp()
                    self.lags_ms.append(lag_s * 1_000)
                    self.seen.append(event["id"])
                    self._cursor = last
                    events_max -= 1
                    if events_max <= 0 or len(self.seen) >= self._expected:
                        return


def run(bench: Bench) -> Figures:
    transactions = bench.choose(50_000, 400)
    bench.engine.start_worker()
    with served(bench) as side, bench.report.progress("events", 1) as step:
        key = {"Authorization": f"Bearer {side.key}"}
        url = f"http://127.0.0.1:{side.port}/v1/events?after=latest"
        cursor = httpx.get(url, headers=key).json()["nextCursor"]
        expected = EVENTS_EACH * transactions
        readers = [Reader(side, cursor, expected, number) for number in range(READERS)]
        step.doing(f"{expected:,} events to {READERS} readers")
        for each in readers:
            each.start()
        began_s = time.monotonic()
        writers = [
            threading.Thread(target=_write, args=(bench, transactions // WRITERS))
            for _ in range(WRITERS)
        ]
        for thread in writers:
            thread.start()
        for thread in (*writers, *readers):
            thread.join(GIVE_UP_S)
        took_s = time.monotonic() - began_s
        step.done()
    _check(readers, expected)
    return _report(bench, readers, expected / took_s)


def _write(bench: Bench, transactions: int) -> None:
    for first in range(0, transactions, TOGETHER):
        number = min(TOGETHER, transactions - first)
        wanted = [Request(pipeline="three", input={"n": n}, owner=OWNER) for n in range(number)]
        bench.engine.client.submit_many(wanted)
        # The worker keeps up, so that the feed is measured and not a backlog.
        while bench.engine.still_open() > 2_000:
            time.sleep(0.05)


def _check(readers: list[Reader], expected: int) -> None:
    for each in readers:
        if len(each.seen) != expected or len(set(each.seen)) != expected:
            different = len(set(each.seen))
            raise AssertionError(f"{each.name}: {len(each.seen)} events, {different} different")
        if each.seen != readers[0].seen:
            raise AssertionError(f"{each.name} has another order")


def _report(bench: Bench, readers: list[Reader], per_s: float) -> Figures:
    cuts = quantiles([lag for each in readers for lag in each.lags_ms], n=100)
    streams = sum(each.streams for each in readers)
    bench.report.table(
        f"Event feed: {len(readers[0].seen):,} events, {READERS} readers, {streams} streams",
        ("", "value"),
        (
            ("events a second, to each reader", f"{per_s:,.0f}"),
            ("from the event to the reader, p50 ms", f"{cuts[49]:.0f}"),
            (f"p99 ms (at most {BAR_MS:.0f})", f"{cuts[98]:.0f}"),
        ),
    )
    return {"event_feed_lag_p99_ms": cuts[98], "event_feed_events_per_s": per_s}
