"""What a transaction of three steps makes the servers do, as the servers count it."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.bench import Bench
from benchmarks.report import Figures
from benchmarks.stack import Counts


def run(bench: Bench) -> Figures:
    many, alone = bench.choose((5_000, 200), (500, 20))
    engine, stack = bench.engine, bench.stack
    with bench.report.progress("costs", 2) as step:
        engine.start_worker()
        step.doing(f"{many} at once")
        before, polls = stack.counts(), engine.polls
        engine.many("three", many)
        counted = stack.counts() - before
        round_trips = counted.round_trips - (engine.polls - polls)
        bulk = _per_transaction(replace(counted, round_trips=round_trips), many)
        step.done()
        step.doing(f"{alone}, one at a time")
        before = stack.counts()
        for _ in range(alone):
            engine.one("three")
        single = _per_transaction(stack.counts() - before, alone)
        step.done()
    titles = {
        "messages": "Celery messages",
        "commits": "SQL transactions that write",
        "redis_round_trips": "Redis round trips, broker's included",
        "scripts": "Lua scripts",
    }
    bench.report.table(
        "Cost of a transaction of 3 steps, counted by the servers",
        ("", f"{many:,} at once", "one at a time"),
        [(title, f"{bulk[name]:.3f}", f"{single[name]:.2f}") for name, title in titles.items()],
    )
    return {
        **{f"{name}_per_tx": value for name, value in bulk.items()},
        **{f"{name}_per_lone_tx": value for name, value in single.items()},
    }


def _per_transaction(counted: Counts, transactions: int) -> Figures:
    return {
        "messages": counted.messages / transactions,
        "commits": counted.commits / transactions,
        "redis_round_trips": counted.round_trips / transactions,
        "scripts": counted.scripts / transactions,
    }
