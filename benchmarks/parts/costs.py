"""What a transaction of three steps makes the servers do, as the servers count it."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.engine import Engine
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
POLLS = 20


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
    """What the servers did for so many at once, without our own looking whether they are done."""
    polling = _one_poll(stack, engine)
    before, polls = stack.counts(), engine.polls
    engine.many("three", transactions)
    counted = stack.counts() - before
    return counted - polling.times(engine.polls - polls)


def _one_poll(stack: Stack, engine: Engine) -> Counts:
    before = stack.counts()
    for _ in range(POLLS):
        engine.still_open()
    return (stack.counts() - before).times(1 / POLLS)


def _per_transaction(counted: Counts, transactions: int) -> Figures:
    return {
        "messages": counted.messages / transactions,
        "commits": counted.commits / transactions,
        "redis_round_trips": counted.round_trips / transactions,
        "scripts": counted.scripts / transactions,
        "redis_calls": counted.commands / transactions,
        "redis_bytes": counted.bytes_in / transactions,
    }
