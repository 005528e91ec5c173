"""The rate that lasts: with beat and all its jobs at work, beside a short peak without them.

The peak is a few thousand at once with no beat, measured before and after: a virtual machine that
was busy for half a minute is slower, and that must not look like a cost of beat. In between beat
runs, and a hundred thousand go through; as many as made the peak are on their way at any time. The
archiver drains the journal and copies ended states to SQL meanwhile: a few seconds after their end
instead of a minute, so that this work is part of the run and not left for after it.
"""

from __future__ import annotations

import time
from statistics import median

from benchmarks.bench import Bench
from benchmarks.engine import POLL_S, Engine
from benchmarks.report import Figures, Step
from benchmarks.rounds import shown
from benchmarks.stack import EMPTY_STEP_PROCESSES, Stack
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.local.processes import ManagedProcess

ARCHIVING_DELAY_S = 5
CHUNK = 1_000
CATCH_UP_S = 60.0
GIVE_UP_S = 900.0

ARCHIVED = "SELECT count(*) FROM tx_state"


def run(bench: Bench) -> Figures:
    rounds = bench.choose(4, 1)
    at_once, total = bench.choose((5_000, 100_000), (300, 1_500))
    engine = Engine(
        bench.stack,
        processes=EMPTY_STEP_PROCESSES,
        delay_before_archiving_s=ARCHIVING_DELAY_S,
    )
    with bench.report.progress("sustained", 2 * rounds + -(-total // CHUNK)) as step:
        try:
            step.doing("worker warms up")
            engine.start_worker()
            engine.many("three", at_once)
            before = _peaks(engine, at_once, rounds, step)
            step.doing("beat starts, the journal is drained")
            beat = _start_beat(bench.stack, engine)
            per_s = _flow(engine, total, at_once, step)
            waiting = engine.connections.live.sizes()["toArchiveZ"]
            journal = ArchiveFeed(engine.connections.live).journal_length()
            archived = bench.stack.sql(ARCHIVED)
            engine.check_all_succeeded()
            bench.stack.stop(beat)
            bench.stack.rest()
            after = _peaks(engine, at_once, rounds, step)
            engine.check_all_succeeded()
        finally:
            engine.close()
    peak = median(before + after)
    ratio = per_s / peak
    bench.report.table(
        f"{total:,} transactions of 3 steps in a row with beat and all its jobs",
        ("", "figure"),
        (
            (f"a second, without beat, {at_once:,} at once, before", _figure(before)),
            ("the same after it", _figure(after)),
            ("a second, with beat, until all are final", f"{per_s:,.0f}"),
            ("ratio", f"{ratio:.2f}"),
            ("journal entries not yet in SQL at the end", f"{journal:,}"),
            ("states copied to SQL meanwhile", f"{archived:,}"),
            ("states not yet copied, those not due included", f"{waiting:,}"),
        ),
    )
    return {
        "sustained_tx_per_s": per_s,
        "sustained_peak_tx_per_s": peak,
        "sustained_ratio_to_peak": ratio,
        "sustained_journal_backlog": journal,
    }


def _peaks(engine: Engine, at_once: int, rounds: int, step: Step) -> list[float]:
    found = []
    for number in range(rounds):
        step.doing(f"peak, round {number + 1} of {rounds}")
        found.append(engine.many("three", at_once))
        step.done()
    return found


def _figure(peaks: list[float]) -> str:
    middle, spread = shown(peaks)
    return f"{middle} ({spread})"


def _start_beat(stack: Stack, engine: Engine) -> ManagedProcess:
    """At work: it has drained what the peak left in the journal."""
    beat = stack.start_beat(engine.environment)
    outgoing = ArchiveFeed(engine.connections.live)
    ends_s = time.monotonic() + CATCH_UP_S
    while outgoing.journal_length():
        if time.monotonic() > ends_s:
            raise TimeoutError(f"the journal is not drained after {CATCH_UP_S:g} s")
        time.sleep(POLL_S)
    return beat


def _flow(engine: Engine, total: int, open_max: int, step: Step) -> float:
    """Transactions a second, with about so many on their way at any time."""
    left = total
    began_s = time.perf_counter()
    while left:
        step.doing(f"{total - left:,} handed in")
        if engine.still_open() >= open_max:
            time.sleep(POLL_S)
            continue
        chunk = min(CHUNK, left)
        engine.client.submit_many(engine.requests("three", chunk))
        left -= chunk
        step.done()
    engine.wait_for_all(GIVE_UP_S)
    return total / (time.perf_counter() - began_s)
