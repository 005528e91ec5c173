"""The rate that lasts: with beat and all its jobs at work, beside a short peak without them.

The peak is a few thousand at once with no beat. A hundred thousand go through the system with beat
meanwhile; as many as made the peak are on their way at any time. The archiver drains the journal
and copies ended states to SQL: a few seconds after their end instead of a minute, so that this work
is part of the run and not left for after it.

The peak has servers of its own, and both take turns, of as many transactions each: a virtual
machine changes its speed by half within minutes. Workers and beat of the one stand still (SIGSTOP)
during the turn of the other; what their servers do in the background goes on. Ratio of all
transactions to all time of both sides.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from statistics import harmonic_mean

from benchmarks.bench import Bench
from benchmarks.engine import POLL_S, Engine
from benchmarks.pauses import Pausable
from benchmarks.report import Figures, Step
from benchmarks.stack import EMPTY_STEP_PROCESSES, Stack
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.local.processes import ManagedProcess

ARCHIVING_DELAY_S = 5
CHUNK = 1_000
CATCH_UP_S = 60.0
GIVE_UP_S = 900.0

ARCHIVED = "SELECT count(*) FROM tx_state"


def run(bench: Bench) -> Figures:
    turns = bench.choose(10, 2)
    at_once, total = bench.choose((5_000, 100_000), (300, 1_200))
    bursts = max(1, total // turns // at_once)
    with (
        Stack() as other,
        closing(_engine(bench.stack)) as lasting,
        closing(_engine(other)) as short,
        ExitStack() as pauses,
        bench.report.progress("sustained", turns + -(-total // CHUNK)) as step,
    ):
        step.doing("workers warm up")
        for engine in (short, lasting):
            engine.start_worker()
            engine.many("three", at_once)
        peak_side = Pausable(*short.workers)
        pauses.enter_context(peak_side.paused())
        step.doing("beat starts, the journal is drained")
        beat = _start_beat(bench.stack, lasting)
        lasting_side = Pausable(*lasting.workers, beat)
        pauses.enter_context(lasting_side.paused())
        peaks: list[float] = []
        flow = Flow(lasting, total, open_max=at_once)
        for turn in range(turns):
            step.doing(f"peak, turn {turn + 1} of {turns}")
            with peak_side.moving():
                peaks += [short.many("three", at_once) for _ in range(bursts)]
            step.done()
            with lasting_side.moving():
                flow.submit(total // turns, step)
                if turn == turns - 1:
                    flow.end()
        waiting = lasting.connections.live.sizes()["toArchiveZ"]
        journal = ArchiveFeed(lasting.connections.live).journal_length()
        archived = bench.stack.sql(ARCHIVED)
        lasting.check_all_succeeded()
    per_s = total / flow.took_s
    peak = harmonic_mean(peaks)
    ratio = per_s / peak
    bench.report.table(
        f"{total:,} transactions of 3 steps in a row with beat and all its jobs",
        ("", "figure"),
        (
            (
                f"a second, without beat, {at_once:,} at once, {len(peaks)} times",
                _figure(peak, peaks),
            ),
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


def _engine(stack: Stack) -> Engine:
    return Engine(stack, processes=EMPTY_STEP_PROCESSES, delay_before_archiving_s=ARCHIVING_DELAY_S)


def _figure(peak: float, peaks: list[float]) -> str:
    return f"{peak:,.0f} ({len(peaks)} times {min(peaks):,.0f}-{max(peaks):,.0f})"


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


class Flow:
    """Transactions one after the other, with about so many on their way at any time."""

    def __init__(self, engine: Engine, total: int, *, open_max: int) -> None:
        self._engine = engine
        self._total = total
        self._open_max = open_max
        self._submitted = 0
        #: Of the turns so far.
        self.took_s = 0.0

    def submit(self, count: int, step: Step) -> None:
        began_s = time.perf_counter()
        ends = self._submitted + count
        while self._submitted < ends:
            step.doing(f"{self._submitted:,} of {self._total:,} handed in")
            if self._engine.still_open() >= self._open_max:
                time.sleep(POLL_S)
                continue
            chunk = min(CHUNK, ends - self._submitted)
            self._engine.client.submit_many(self._engine.requests("three", chunk))
            self._submitted += chunk
            step.done()
        self.took_s += time.perf_counter() - began_s

    def end(self) -> None:
        """Wait for all that are on their way."""
        began_s = time.perf_counter()
        self._engine.wait_for_all(GIVE_UP_S)
        self.took_s += time.perf_counter() - began_s
