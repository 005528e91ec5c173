"""What a queued transaction takes in Redis beyond its payload, while no worker runs.

The payload is of a size at which Redis leaves its compact encoding of small hashes, as real ones
are. Transactions of a known, quick step share bells; those of a slow one have a bell each.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.engine import Engine
from benchmarks.report import Figures
from benchmarks.stack import Stack
from datp_tasks.model.payload import encode

PADDING = "x" * 200


def run(bench: Bench) -> Figures:
    transactions = bench.choose(5_000, 1_000)
    engine, stack = bench.engine, bench.stack
    with bench.report.progress("memory", 4) as step:
        step.doing("warm up")
        engine.start_worker()
        engine.stop_worker()
        step.done()
        step.doing(f"{transactions} wait, many to a bell")
        sharing = _bytes_each(stack, engine, transactions)
        step.done()
        step.doing(f"{transactions} wait, each with its own bell")
        alone = _bytes_each(stack, Engine(stack, vector_max=1), transactions)
        step.done()
        step.doing("a worker does them after all")
        engine.start_worker()
        engine.wait_for_all()
        step.done()
    bench.report.table(
        f"Redis memory of {transactions:,} queued transactions beyond their payload",
        ("state, lists, keys and bells", "bytes each"),
        (
            ("sharing bells", f"{sharing:,.0f}"),
            ("each with its own bell", f"{alone:,.0f}"),
        ),
    )
    return {"redis_bytes_per_queued_tx": sharing, "redis_bytes_per_queued_tx_alone": alone}


def _bytes_each(stack: Stack, engine: Engine, transactions: int) -> float:
    requests = engine.requests("three", transactions, PADDING)
    payload = sum(len(encode(request.input)) for request in requests)
    before = stack.memory_bytes()
    engine.client.submit_many(requests)
    return (stack.memory_bytes() - before - payload) / transactions
