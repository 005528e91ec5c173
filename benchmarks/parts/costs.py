"""What a transaction of three steps makes the servers do, as the servers count it."""

from __future__ import annotations

import time

from benchmarks.bench import Bench
from benchmarks.engine import GIVE_UP_S, POLL_S, Engine
from benchmarks.report import Figures
from benchmarks.stack import Counts, Stack

#: Figure -> what it is called in the table.
TITLES = {
    "messages": "Celery messages",
    "commits": "SQL transactions that write",
    "redis_round_trips": "Redis round trips, broker's included",
    "scripts": "Lua scripts (EVALSHA)",
    "redis_calls": "Redis commands, those in scripts included",
    "redis_bytes": "bytes sent to Redis",
}
OPEN = "SELECT count(*) FROM tx_summary WHERE completed_at IS NULL"
#: For so long Redis is given time to hear of the last ends.
FOLLOW_S = 0.5


def run(bench: Bench) -> Figures:
    many, alone = bench.choose((5_000, 200), (500, 20))
    engine, stack = bench.engine, bench.stack
    with bench.report.progress("costs", 2) as step:
        engine.start_worker()
        step.doing(f"{many} at once")
        bulk = _per_transaction(count_many(stack, engine, many), many)
        step.done()
        step.doing(f"{alone}, one at a time")
        before = stack.counts()
        for _ in range(alone):
            engine.one("three")
        single = _per_transaction(stack.counts() - before, alone)
        step.done()
    bench.report.table(
        "Cost of a transaction of 3 steps, counted by the servers",
        ("", f"{many:,} at once", "one at a time"),
        [(title, f"{bulk[name]:,.3f}", f"{single[name]:,.2f}") for name, title in TITLES.items()],
    )
    return {
        **{f"{name}_per_tx": value for name, value in bulk.items()},
        **{f"{name}_per_lone_tx": value for name, value in single.items()},
    }


def count_many(stack: Stack, engine: Engine, transactions: int) -> Counts:
    """What the servers did for so many at once. PostgreSQL is asked whether they have ended, where
    reading is not counted; Redis follows it."""
    requests = engine.requests("three", transactions)
    before = stack.counts()
    engine.client.submit_many(requests)
    ends_s = time.monotonic() + GIVE_UP_S
    while left := stack.sql(OPEN):
        if time.monotonic() > ends_s:
            raise TimeoutError(f"{left} transactions have not ended after {GIVE_UP_S:g} s")
        time.sleep(POLL_S)
    time.sleep(FOLLOW_S)
    counted = stack.counts() - before
    if left := engine.still_open():
        raise TimeoutError(f"Redis has not heard of the end of {left} after {FOLLOW_S:g} s")
    engine.check_all_succeeded()
    return counted


def _per_transaction(counted: Counts, transactions: int) -> Figures:
    return {
        "messages": counted.messages / transactions,
        "commits": counted.commits / transactions,
        "redis_round_trips": counted.round_trips / transactions,
        "scripts": counted.scripts / transactions,
        "redis_calls": counted.commands / transactions,
        "redis_bytes": counted.bytes_in / transactions,
    }
