"""Where the CPU time goes: microseconds of each process per transaction of three no-op steps.

The kernel's own accounts in /proc are read before and after; the client's part is that of handing
in, without waiting. Redis is single-threaded, so its microseconds are a cap: 1,000,000 divided by
them is what one server can do, whatever else is added.
"""

from __future__ import annotations

import time
from statistics import median

from benchmarks.bench import Bench
from benchmarks.engine import Engine
from benchmarks.process_times import below_s, own_s, snapshot
from benchmarks.report import Figures
from benchmarks.stack import Stack

#: Figure -> which process that is.
TITLES = {
    "worker": "worker children",
    "valkey": "Redis (Valkey)",
    "client": "client, handing in",
    "postgres": "PostgreSQL, all its processes",
    "worker_main": "worker main process",
}
MICROSECONDS = 1_000_000


def run(bench: Bench) -> Figures:
    rounds, transactions = bench.choose((5, 5_000), (2, 600))
    engine = bench.engine
    found: dict[str, list[float]] = {name: [] for name in TITLES}
    rates = []
    with bench.report.progress("cpu", rounds) as step:
        step.doing("worker warms up")
        engine.start_worker()
        engine.many("three", transactions)
        for number in range(rounds):
            step.doing(f"round {number + 1} of {rounds}")
            used, per_s = _round(bench.stack, engine, transactions)
            for name, seconds in used.items():
                found[name].append(seconds / transactions * MICROSECONDS)
            rates.append(per_s)
            step.done()
    micros = {name: median(each) for name, each in found.items()}
    shown = [(TITLES[name], f"{micros[name]:,.0f}", _range(found[name])) for name in TITLES]
    total = sum(micros.values())
    bench.report.table(
        f"CPU of a transaction of 3 steps, {transactions:,} at once: median of {rounds} rounds "
        f"at {median(rates):,.0f} tx/s",
        ("process", "µs per transaction", "range"),
        [*shown, ("together", f"{total:,.0f}", "")],
    )
    return {**{f"{name}_us_per_tx": each for name, each in micros.items()}, "us_per_tx": total}


def _round(stack: Stack, engine: Engine, transactions: int) -> tuple[Figures, float]:
    requests = engine.requests("three", transactions)
    before = _used_s(stack, engine)
    began_s, client_s = time.perf_counter(), time.process_time()
    engine.client.submit_many(requests)
    client_s = time.process_time() - client_s
    engine.wait_for_all()
    took_s = time.perf_counter() - began_s
    after = _used_s(stack, engine)
    engine.check_all_succeeded()
    used = {name: after[name] - before[name] for name in after}
    return {**used, "client": client_s}, transactions / took_s


def _used_s(stack: Stack, engine: Engine) -> Figures:
    seen = snapshot()
    (worker,) = engine.workers
    pids = {"worker": worker.pid, "valkey": stack.redis_server.pid, "postgres": stack.postgres.pid}
    ids = {name: pid for name, pid in pids.items() if pid is not None}
    return {
        "worker": below_s(seen, ids["worker"]),
        "worker_main": own_s(seen, ids["worker"]),
        "valkey": own_s(seen, ids["valkey"]),
        "postgres": own_s(seen, ids["postgres"]) + below_s(seen, ids["postgres"]),
    }


def _range(values: list[float]) -> str:
    return f"{min(values):,.0f}-{max(values):,.0f}"
