"""How throughput grows with K, the number of transactions that share a message and a commit."""

from __future__ import annotations

from statistics import median

from benchmarks.bench import Bench
from benchmarks.engine import Engine
from benchmarks.report import Figures

#: K -> transactions in a round.
FULL = {1: 600, 8: 3_000, 32: 6_000, 100: 9_000, 200: 9_000}
QUICK = {1: 40, 100: 300}


def run(bench: Bench) -> Figures:
    rounds = bench.choose(3, 1)
    sizes = bench.choose(FULL, QUICK)
    found: dict[str, float] = {}
    with bench.report.progress("vectors", len(sizes)) as step:
        for vector_max, transactions in sizes.items():
            step.doing(f"K = {vector_max}")
            engine = Engine(bench.stack, vector_max=vector_max)
            engine.start_worker()
            each = [engine.many("three", transactions) for _ in range(rounds)]
            found[f"K = {vector_max}"] = median(each)
            engine.close()
            step.done()
    bench.report.bars("Transactions of 3 steps a second, by vector size", found, "tx/s")
    return {f"three_step_tx_per_s_k{name[4:]}": value for name, value in found.items()}
