"""Does a deep queue slow the workers down? The rate with 1,000 and with 300,000 queued.

Two systems, each with servers of its own, take turns: a virtual machine changes its speed by half
within minutes, and filling the deep queue takes one. Each worker is warm and stands still (SIGSTOP)
while a thousand transactions are handed in; then it goes on until a thousand have ended, and stands
still again. So each queue has its depth before and after a turn, neither runs empty, and nothing
but one worker is at work.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

from benchmarks.bench import Bench
from benchmarks.engine import Engine
from benchmarks.pauses import Pausable
from benchmarks.report import Figures, Step
from benchmarks.rounds import Rounds
from benchmarks.stack import Stack

POLL_S = 0.005
GIVE_UP_S = 120.0
CHUNK = 5_000
#: A virtual machine that was busy for a minute is slower for some seconds after it.
REST_S = 30.0


def run(bench: Bench) -> Figures:
    rounds = bench.choose(41, 2)
    each, depth = bench.choose((1_000, 300_000), (200, 3_000))
    found = Rounds({"shallow": [], "deep": []})
    with (
        Stack() as other,
        closing(Engine(other)) as deep,
        ExitStack() as pauses,
        bench.report.progress("backlog", 2 * rounds + depth // CHUNK) as step,
    ):
        engines = {"shallow": bench.engine, "deep": deep}
        workers = {}
        for name, engine in engines.items():
            step.doing(f"worker of the {name} queue warms up")
            engine.start_worker()
            engine.many("three", 5 * each)
            workers[name] = Pausable(*engine.workers)
            pauses.enter_context(workers[name].paused())
        _fill(bench.engine, each, step)
        _fill(deep, depth, step)
        step.doing("the machine rests")
        for stack in (bench.stack, other):
            stack.rest()
        time.sleep(bench.choose(REST_S, 0.0))
        for number in range(rounds):
            for name in sorted(engines, reverse=number % 2 == 0):
                step.doing(f"{name} queue, round {number + 1} of {rounds}")
                _fill(engines[name], each, step)
                found.found[name].append(_rate(engines[name], workers[name], each))
                step.done()
    ratio = found.ratio("deep", "shallow")
    bench.report.table(
        f"The next {each:,} transactions of 3 steps: median and range of {rounds} rounds in turn, "
        f"median of the ratios {ratio:.2f}",
        ("queued before", "tx/s", "range"),
        (
            (f"{each:,}", *found.shown("shallow")),
            (f"{depth:,}", *found.shown("deep")),
        ),
    )
    return {
        "backlog_1k_tx_per_s": found.middle("shallow"),
        "backlog_300k_tx_per_s": found.middle("deep"),
        "backlog_300k_ratio": ratio,
    }


def _fill(engine: Engine, count: int, step: Step) -> None:
    for start in range(0, count, CHUNK):
        engine.client.submit_many(engine.requests("three", min(CHUNK, count - start)))
        if count > CHUNK:
            step.doing(f"{start + CHUNK:,} of {count:,} handed in")
            step.done()


def _rate(engine: Engine, worker: Pausable, count: int) -> float:
    """How many end in a second, over the next so many."""
    before = engine.still_open()
    began_s = time.perf_counter()
    with worker.moving():
        while (ended := before - engine.still_open()) < count:
            if time.perf_counter() - began_s > GIVE_UP_S:
                raise TimeoutError(f"{ended} of {count} have ended after {GIVE_UP_S:g} s")
            time.sleep(POLL_S)
        took_s = time.perf_counter() - began_s
    return ended / took_s
