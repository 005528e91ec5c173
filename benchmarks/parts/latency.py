"""How long one takes, alone: handed in, run, waited for; then the next."""

from __future__ import annotations

from statistics import quantiles

from benchmarks.bench import Bench
from benchmarks.engine import STEPS
from benchmarks.report import Figures

BLOCK = 25


def run(bench: Bench) -> Figures:
    blocks = bench.choose(16, 2)
    ours: list[float] = []
    theirs: list[float] = []
    with bench.report.progress("latency", 2 * blocks) as step:
        bench.engine.start_worker()
        bench.chain.start_worker()
        for _ in range(blocks):
            step.doing("ours")
            ours += [bench.engine.one("three") for _ in range(BLOCK)]
            step.done()
            step.doing("Celery's")
            theirs += [bench.chain.one(STEPS["three"]) for _ in range(BLOCK)]
            step.done()
    p50, p99 = _percentiles_ms(ours)
    chain_p50, chain_p99 = _percentiles_ms(theirs)
    bench.report.table(
        f"One at a time, 3 steps: {len(ours)} of each, in alternating blocks of {BLOCK}",
        ("", "p50 ms", "p99 ms"),
        (
            ("submit and wait", f"{p50:.1f}", f"{p99:.1f}"),
            ("Celery chain and its last task", f"{chain_p50:.1f}", f"{chain_p99:.1f}"),
        ),
    )
    return {
        "one_tx_p50_ms": p50,
        "one_tx_p99_ms": p99,
        "celery_chain_one_p50_ms": chain_p50,
        "celery_chain_one_p99_ms": chain_p99,
    }


def _percentiles_ms(seconds: list[float]) -> tuple[float, float]:
    cuts = quantiles(seconds, n=100)
    return cuts[49] * 1_000, cuts[98] * 1_000
