"""What a queued transaction takes in Redis beyond its payload, while no worker runs."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.report import Figures
from datp_tasks.model.payload import encode


def run(bench: Bench) -> Figures:
    transactions = bench.choose(5_000, 1_000)
    engine, stack = bench.engine, bench.stack
    with bench.report.progress("memory", 3) as step:
        step.doing("warm up")
        engine.start_worker()
        engine.stop_worker()
        step.done()
        step.doing(f"{transactions} wait in the queue")
        requests = engine.requests("three", transactions)
        payload = sum(len(encode(request.data)) for request in requests)
        before = stack.memory_bytes()
        engine.client.submit_many(requests)
        grown = stack.memory_bytes() - before
        step.done()
        step.doing("a worker does them after all")
        engine.start_worker()
        engine.wait_for_all()
        step.done()
    each = (grown - payload) / transactions
    bench.report.table(
        f"Redis memory of {transactions:,} queued transactions",
        ("", "bytes each"),
        (
            ("payload", f"{payload / transactions:,.0f}"),
            ("beyond it: state, lists, keys and bells", f"{each:,.0f}"),
        ),
    )
    return {"redis_bytes_per_queued_tx": each}
