"""How many a second: our pipelines beside a plain Celery chain of the same length.

Rounds alternate between the two, and each ratio is taken within a round, so that a noisy
neighbour hits both sides; the figures are medians.
"""

from __future__ import annotations

from statistics import median

from benchmarks.bench import Bench
from benchmarks.engine import STEPS
from benchmarks.report import Figures
from benchmarks.rounds import shown

#: Pipeline -> transactions and chains in a round: a second or two each, so that both sides of a
#: round meet the same weather.
FULL = {"three": (5_000, 250), "ten": (2_500, 80)}
QUICK = {"three": (600, 40), "ten": (300, 12)}


def run(bench: Bench) -> Figures:
    rounds = bench.choose(9, 3)
    sizes = bench.choose(FULL, QUICK)
    figures: Figures = {}
    rows = []
    with bench.report.progress("throughput", 2 * rounds * len(sizes)) as step:
        step.doing("workers warm up")
        bench.engine.start_worker()
        bench.chain.start_worker()
        for name, (transactions, chains) in sizes.items():
            ours, theirs = [], []
            for number in range(rounds):
                step.doing(f"{STEPS[name]} steps, round {number + 1} of {rounds}")
                ours.append(bench.engine.many(name, transactions))
                step.done()
                theirs.append(bench.chain.many(STEPS[name], chains))
                step.done()
            ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
            figures[f"{name}_step_tx_per_s"] = median(ours)
            figures[f"celery_chain_{name}_per_s"] = median(theirs)
            figures[f"{name}_step_ratio_to_celery_chain"] = median(ratios)
            title = f"{STEPS[name]} steps"
            rows.append((title, *shown(ours), *shown(theirs), *shown(ratios, decimals=1)))
    bench.report.table(
        f"Throughput: median and range of {rounds} alternating rounds",
        ("no-op", "tx/s", "range", "Celery chains/s", "range", "ratio", "range"),
        rows,
    )
    bench.report.say(
        "Ours: accepted and ended by a commit in SQL, a checkpoint after every step.\n"
        "Celery: no results, no result backend, early acks; a chain that is lost is lost."
    )
    return figures
