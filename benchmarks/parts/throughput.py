"""How many a second: our pipelines beside a plain Celery chain of the same length.

Rounds alternate between the two, and each ratio is taken within a round, so that a noisy
neighbour hits both sides; the figures are medians.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from statistics import median

from benchmarks.bench import Bench
from benchmarks.celery_chain import Chain
from benchmarks.engine import STEPS, Engine
from benchmarks.report import Figures
from benchmarks.rounds import shown
from benchmarks.stack import EMPTY_STEP_PROCESSES

#: Pipeline -> transactions and chains in a round: a second or two each, so that both sides of a
#: round meet the same weather.
FULL = {"three": (10_000, 400), "ten": (5_000, 160)}
QUICK = {"three": (600, 40), "ten": (300, 12)}


def run(bench: Bench) -> Figures:
    rounds = bench.choose(13, 3)
    sizes = bench.choose(FULL, QUICK)
    figures: Figures = {}
    rows = []
    with ExitStack() as exits:
        step = exits.enter_context(bench.report.progress("throughput", 2 * rounds * len(sizes)))
        of_each = {"processes": EMPTY_STEP_PROCESSES}
        engine = exits.enter_context(closing(Engine(bench.stack, **of_each)))
        chain = exits.enter_context(closing(Chain(bench.stack, **of_each)))
        step.doing("workers warm up")
        engine.start_worker()
        chain.start_worker()
        for name, (transactions, chains) in sizes.items():
            ours, theirs = [], []
            for number in range(rounds):
                step.doing(f"{STEPS[name]} steps, round {number + 1} of {rounds}")
                ours.append(engine.many(name, transactions))
                step.done()
                theirs.append(chain.many(STEPS[name], chains))
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
