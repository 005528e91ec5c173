"""Latency under a steady load: transfers over HTTP, so many a second, with the whole house on.

`datp up` runs the API, beat with all its jobs and one process per node group; the generator is a
process of its own and never waits for answers before it sends the next. From accept to final is
what PostgreSQL says: from the commit that accepted a transfer to the one that ended it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from sqlalchemy import text

from benchmarks.bench import Bench
from benchmarks.books import check_books, open_books, transfers
from benchmarks.house import House
from benchmarks.http_load import load
from benchmarks.report import Figures
from benchmarks.stack import Stack

#: What the rates are called in `latest.json`, also in a quick run.
NAMES = ("50", "200")
#: Of so many one is followed by a long poll: enough for a median, and little load of its own.
POLL_EVERY = 10
#: How long to wait for the last ones. What is not final then counts with its age.
DRAIN_S = 20.0
POLL_S = 0.2
#: A generator that is later than this had no CPU left, and the figures are worse for it.
LATE_MS = 100.0
#: Beyond the load itself: connections, and answers that are late.
MARGIN_S = 60.0

OPEN = "SELECT count(*) FROM tx_summary WHERE completed_at IS NULL"
FOUND = text("""
SELECT extract(epoch FROM coalesce(completed_at, now()) - created_at)::float8 * 1000 AS took_ms,
       completed_at IS NOT NULL AS is_final
FROM tx_summary WHERE tx_id = ANY(:tx_ids)
""")


@dataclass(frozen=True)
class Load:
    per_s: int
    took_ms: list[float]
    unfinished: int
    accepted_ms: list[float]
    client_ms: list[float]
    late_ms: float

    @property
    def p50_p99(self) -> tuple[float, float]:
        return _cuts(self.took_ms)


def run(bench: Bench) -> Figures:
    rates = bench.choose((50, 200), (5, 10))
    warm_up_s, seconds = bench.choose((8, 60), (1, 2))
    loads = []
    with bench.report.progress("steady", len(rates)) as step:
        for per_s in rates:
            # A rate that was too much must leave nothing for the next.
            bench.stack.renew()
            open_books(bench.stack.engine)
            step.doing("datp up")
            with House(bench.stack) as house:
                step.doing(f"{per_s} a second")
                _send(house, per_s, warm_up_s)
                _drain(bench.stack)
                loads.append(_measure(bench.stack, house, per_s, seconds))
            step.done()
    _report(bench, loads, seconds)
    figures: Figures = {}
    for name, each in zip(NAMES, loads, strict=True):
        figures[f"steady_{name}_p50_ms"], figures[f"steady_{name}_p99_ms"] = each.p50_p99
        figures[f"steady_{name}_unfinished"] = each.unfinished
    return figures


def _measure(stack: Stack, house: House, per_s: int, seconds: int) -> Load:
    sent = _send(house, per_s, seconds)
    _drain(stack)
    with stack.engine.connect() as connection:
        rows = connection.execute(FOUND, {"tx_ids": sent["tx_ids"]}).all()
    unfinished = sum(not row.is_final for row in rows)
    if len(rows) != per_s * seconds:
        raise AssertionError(f"{len(rows)} of {per_s * seconds} transfers are in SQL")
    if not unfinished:
        check_books(stack.engine, stack.sql("SELECT count(*) FROM tx_summary"))
    return Load(
        per_s,
        [row.took_ms for row in rows],
        unfinished,
        accepted_ms=[each_s * 1_000 for each_s in sent["accepted_s"]],
        client_ms=[each_s * 1_000 for each_s in sent["final_s"]],
        late_ms=sent["late_s"] * 1_000,
    )


def _send(house: House, per_s: int, seconds: int) -> dict[str, Any]:
    wanted = transfers(per_s * seconds)
    bodies = [json.dumps({"pipeline": "transfer", "input": data}) for data in wanted]
    order = {
        "what": "paced",
        "port": house.port,
        "key": house.key,
        "path": "/v1/transactions",
        "bodies": bodies,
        "per_s": per_s,
        "poll_every": POLL_EVERY,
        "poll_s": int(DRAIN_S),
    }
    return load(order, seconds + DRAIN_S + MARGIN_S)


def _drain(stack: Stack) -> None:
    ends_s = time.monotonic() + DRAIN_S
    while time.monotonic() < ends_s and stack.sql(OPEN):
        time.sleep(POLL_S)


def _report(bench: Bench, loads: list[Load], seconds: int) -> None:
    bench.report.table(
        f"Transfers over HTTP for {seconds} s with API, beat and workers on, ms",
        ("", *(name for each in loads for name in (f"{each.per_s}/s, p50", "p99"))),
        (
            ("accepted to final, by SQL", *_pairs(each.took_ms for each in loads)),
            ("sent to accepted, by the client", *_pairs(each.accepted_ms for each in loads)),
            (
                f"sent to final, by long poll of 1 in {POLL_EVERY}",
                *_pairs(each.client_ms for each in loads),
            ),
        ),
    )
    for each in loads:
        if each.unfinished:
            bench.report.say(
                f"[bold]{each.per_s} a second is more than this machine can do[/bold]: "
                f"{each.unfinished:,} transfers were not final {DRAIN_S:g} s after the last one "
                "was sent, and count with their age by then."
            )
        if each.late_ms > LATE_MS:
            bench.report.say(f"The generator was late by up to {each.late_ms:.0f} ms.")


def _pairs(kinds: Iterable[list[float]]) -> list[str]:
    """p50 and p99 of each, as a table shows them."""
    return [
        f"{cut:,.1f}" if len(times) > 1 else ""
        for times in kinds
        for cut in (_cuts(times) if len(times) > 1 else (0.0, 0.0))
    ]


def _cuts(times: list[float]) -> tuple[float, float]:
    cuts = quantiles(times, n=100)
    return cuts[49], cuts[98]
