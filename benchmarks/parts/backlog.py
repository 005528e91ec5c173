"""Does a deep queue slow the workers down? The rate with 1,000 and with 300,000 queued.

The worker is warm and stands still (SIGSTOP) while transactions are handed in; then it goes on
until a thousand have ended, and stands still again. So both depths are measured in the same way,
on the same number of transactions, with nothing but the worker at work.

Filling a deep queue keeps a machine busy for a minute, and a virtual one is slower for some seconds
after that, whatever it does: the CPU time of a worker, which knows nothing of the depth, rose by
40 % and fell again. So both depths are measured after the same rest.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench
from benchmarks.engine import Engine
from benchmarks.report import Figures, Step
from benchmarks.rounds import Rounds
from datp_tasks.local.processes import ManagedProcess

POLL_S = 0.005
GIVE_UP_S = 120.0
CHUNK = 5_000
#: After 10 s some of that is left, after 30 s nothing.
REST_S = 30.0


def run(bench: Bench) -> Figures:
    rounds = bench.choose(9, 2)
    shallow, deep = bench.choose((1_000, 300_000), (200, 3_000))
    rest_s = bench.choose(REST_S, 0.0)
    engine = bench.engine
    found = Rounds({"shallow": [], "deep": []})
    with bench.report.progress("backlog", 2 * rounds + deep // CHUNK) as step:
        step.doing("worker warms up")
        engine.start_worker()
        engine.many("three", 5 * shallow)
        with _standing_still(engine) as worker:
            bench.stack.rest()
            time.sleep(rest_s)
            for number in range(rounds):
                step.doing(f"{shallow:,} queued, round {number + 1} of {rounds}")
                _fill(engine, shallow, step)
                found.found["shallow"].append(_rate(engine, worker, shallow))
                step.done()
            _fill(engine, deep, step)
            step.doing("the machine rests")
            bench.stack.rest()
            time.sleep(rest_s)
            for number in range(rounds):
                step.doing(f"{deep:,} queued, round {number + 1} of {rounds}")
                found.found["deep"].append(_rate(engine, worker, shallow))
                step.done()
    ratio = found.middle("deep") / found.middle("shallow")
    bench.report.table(
        f"The next {shallow:,} transactions of 3 steps: median and range of {rounds} rounds, "
        f"ratio {ratio:.2f}",
        ("queued before", "tx/s", "range"),
        (
            (f"{shallow:,}", *found.shown("shallow")),
            (f"{deep:,}", *found.shown("deep")),
        ),
    )
    return {
        "backlog_1k_tx_per_s": found.middle("shallow"),
        "backlog_300k_tx_per_s": found.middle("deep"),
        "backlog_300k_ratio": ratio,
    }


class Worker:
    """All processes of a worker: they are one group."""

    def __init__(self, process: ManagedProcess) -> None:
        if process.pid is None:
            raise AssertionError("the worker has ended")
        self._group = process.pid

    def stand_still(self) -> None:
        os.killpg(self._group, signal.SIGSTOP)

    def go_on(self) -> None:
        os.killpg(self._group, signal.SIGCONT)


@contextmanager
def _standing_still(engine: Engine) -> Iterator[Worker]:
    """It moves only where `_rate` lets it, and can be stopped afterwards like any other."""
    worker = Worker(engine.workers[0])
    worker.stand_still()
    try:
        yield worker
    finally:
        worker.go_on()


def _fill(engine: Engine, count: int, step: Step) -> None:
    for start in range(0, count, CHUNK):
        engine.client.submit_many(engine.requests("three", min(CHUNK, count - start)))
        if count > CHUNK:
            step.doing(f"{start + CHUNK:,} of {count:,} handed in")
            step.done()


def _rate(engine: Engine, worker: Worker, count: int) -> float:
    """How many end in a second, over the next so many."""
    before = engine.still_open()
    began_s = time.perf_counter()
    worker.go_on()
    while (ended := before - engine.still_open()) < count:
        if time.perf_counter() - began_s > GIVE_UP_S:
            raise TimeoutError(f"{ended} of {count} have ended after {GIVE_UP_S:g} s")
        time.sleep(POLL_S)
    took_s = time.perf_counter() - began_s
    worker.stand_still()
    return ended / took_s
