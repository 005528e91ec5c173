"""How long one takes, alone: handed in, run, waited for; then the next."""

from __future__ import annotations

from statistics import median, quantiles

from benchmarks.bench import Bench
from benchmarks.engine import STEPS
from benchmarks.report import Figures

BLOCK = 25


def run(bench: Bench) -> Figures:
    blocks = bench.choose(16, 2)
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    with bench.report.progress("latency", 2 * blocks) as step:
        bench.engine.start_worker()
        bench.chain.start_worker()
        for _ in range(blocks):
            step.doing("ours")
            ours.append([bench.engine.one("three") for _ in range(BLOCK)])
            step.done()
            step.doing("Celery's")
            theirs.append([bench.chain.one(STEPS["three"]) for _ in range(BLOCK)])
            step.done()
    p50, p99 = _percentiles_ms(ours)
    chain_p50, chain_p99 = _percentiles_ms(theirs)
    # Within a pair of blocks, so that both sides of a ratio meet the same weather.
    ratio = median(median(us) / median(them) for us, them in zip(ours, theirs, strict=True))
    bench.report.table(
        f"One at a time, 3 steps: {blocks * BLOCK} of each, in alternating blocks of {BLOCK}; "
        f"ratio of the medians {ratio:.2f}",
        ("", "p50 ms", "p99 ms"),
        (
            ("submit and wait", f"{p50:.1f}", f"{p99:.1f}"),
            ("Celery chain and its last task", f"{chain_p50:.1f}", f"{chain_p99:.1f}"),
        ),
    )
    return {
        "one_tx_p50_ms": p50,
        "one_tx_p99_ms": p99,
        "one_tx_p50_ratio_to_chain": ratio,
        "celery_chain_one_p50_ms": chain_p50,
        "celery_chain_one_p99_ms": chain_p99,
    }


def _percentiles_ms(blocks: list[list[float]]) -> tuple[float, float]:
    cuts = quantiles([seconds for block in blocks for seconds in block], n=100)
    return cuts[49] * 1_000, cuts[98] * 1_000
