"""The archive: writing states beside raw COPY, coming back from it, and a Redis that stays small.

No worker runs: transactions are moved in bulk by the scripts and statements that workers use, so
that a few minutes are enough for hundreds of thousands. Everything is durable as always.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any
from unittest.mock import patch

from benchmarks.bench import Bench
from benchmarks.report import BAR_CHARS, Figures, Report, Step
from benchmarks.stack import Stack
from benchmarks.travellers import BATCH, Traveller, Travellers
from datp_tasks.jobs import archiver, reconciler
from datp_tasks.jobs.archiver import Archiver, as_copy
from datp_tasks.live import store
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.record.archiver_role import ArchiverRole
from datp_tasks.record.states import Query, States, copy_text
from datp_tasks.runtime import jobs

RATIO_BAR, REBUILD_BAR_S, MEMORY_BAR_MB = 0.5, 60.0, 100.0
ROUNDS = 5
MEGABYTE = 1_000_000
#: Those that have left are gone a second later, so that the end can be seen.
SETTINGS = {
    "delay_before_archiving_s": 0,
    "state_ttl_s": 1,
    "archiver_batch_max": BATCH,
}
#: What is measured is done in one run.
RUN_S = 600.0


@dataclass(frozen=True)
class Sizes:
    #: In Redis when it is wiped; half of them asleep, half in the middle.
    live: int
    #: Pass through in all, asleep and ended each.
    each_kind: int
    #: Rows of one round of writing.
    written: int


@dataclass
class Sample:
    passed: int
    megabytes: float


def run(bench: Bench) -> Figures:
    sizes = bench.choose(Sizes(100_000, 200_000, 10_000), Sizes(2_000, 3_000, 1_000))
    with (
        patch.object(archiver, "RUN_S", RUN_S),
        patch.object(reconciler, "REBUILD_RUN_S", RUN_S),
        patch.object(store, "SLEEPING_TTL_S", 1),
        bench.report.progress("archive", 2 * sizes.each_kind // BATCH + 8) as step,
    ):
        travellers = Travellers(bench.stack, **SETTINGS)
        try:
            memory = Memory(bench.stack)
            queued = _fill(travellers, sizes, step)
            step.doing("writing states")
            writing = _writing(bench.stack, travellers, sizes.written)
            step.doing("the whole archiver")
            writing["run"] = _whole_run(travellers)
            step.doing("bringing back")
            per_s = _bring_back(travellers, sizes.live // 5)
            step.doing("rebuilding")
            rebuilt_s = _rebuild(travellers, sizes.live)
            _go_on(travellers, queued)
            memory.note(sizes.live)
            _pass_through(travellers, sizes, memory, step)
        finally:
            travellers.close()
    _report(bench.report, sizes, writing, per_s, rebuilt_s, memory.samples)
    return {
        "archive_ratio_to_copy": writing["save"] / writing["copy"],
        "archive_run_ratio_to_copy": writing["run"] / writing["copy"],
        "archived_states_per_s": writing["run"],
        "resurrections_per_s": per_s,
        "rebuild_100k_seconds": rebuilt_s * 100_000 / sizes.live,
        "redis_mb_after_400k": memory.samples[-1].megabytes,
    }


def _fill(travellers: Travellers, sizes: Sizes, step: Step) -> list[Traveller]:
    """So many in Redis: half of them asleep, half queued in the middle, which are returned."""
    queued: list[Traveller] = []
    step.doing(f"{sizes.live:,} on their way")
    for number, batch in enumerate(travellers.depart(sizes.live, accepted=True)):
        if number % 2:
            travellers.queue(batch)
            queued += batch
        else:
            travellers.sleep(batch)
        step.done()
    return queued


# Writing.


def _writing(stack: Stack, travellers: Travellers, rows: int) -> dict[str, float]:
    """Rows a second: raw COPY of ready text, and what the archiver does with the same rows."""
    connections = travellers.connections
    due = connections.live.due("toArchiveZ", batch_max=rows)
    found = zip(due, ArchiveFeed(connections.live).copies(due), strict=True)
    copies = [as_copy(tx, copied) for tx, copied in found if copied]
    with stack.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE raw_state (LIKE tx_state INCLUDING ALL)")
    states = States(connections.engine, connections.clock)
    role = ArchiverRole("bench", connections.live.server_now_ms())
    rates: dict[str, list[float]] = {"copy": [], "save": []}
    for number in range(ROUNDS):
        fresh = [each._replace(tx_id=f"{each.tx_id}-{number}") for each in copies]
        batches = [fresh[start : start + BATCH] for start in range(0, len(fresh), BATCH)]
        texts = [copy_text(batch, "2027-01-15T08:00:00+00:00") for batch in batches]
        began_s = time.perf_counter()
        _copy_raw(stack, texts)
        between_s = time.perf_counter()
        for batch in batches:
            states.save(role, batch)
        rates["copy"].append(len(fresh) / (between_s - began_s))
        rates["save"].append(len(fresh) / (time.perf_counter() - between_s))
    with stack.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE raw_state")
        connection.exec_driver_sql("DELETE FROM tx_state WHERE tx_id LIKE '%%-_'")
    return {name: median(found) for name, found in rates.items()}


def _copy_raw(stack: Stack, texts: Sequence[str]) -> None:
    for text in texts:
        with stack.engine.begin() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            with driver.cursor() as cursor:
                copy = Query.copy_in.replace("tx_state", "raw_state")
                cursor.copy_expert(copy, io.StringIO(text))


def _whole_run(travellers: Travellers) -> float:
    """States a second, with the journal of all that happened before them."""
    connections = travellers.connections
    tables = jobs.archiver_tables(connections, connections.settings)
    made = Archiver(connections.live, tables, jobs.archiver_limits(connections.settings))
    if not made.take_role():
        raise AssertionError("another archiver has the role")
    began_s = time.perf_counter()
    result = made.work()
    took_s = time.perf_counter() - began_s
    made.leave_role()
    return result.copied / took_s


# Coming back.


def _bring_back(travellers: Travellers, count: int) -> float:
    connections = travellers.connections
    live = connections.live
    asleep = [tx for tx, _ in live.listed("sleepingZ", rows_max=count)]
    live.redis.unlink(*(live.keys.state(tx) for tx in asleep))
    began_s = time.perf_counter()
    for start in range(0, len(asleep), BATCH):
        connections.recovery.restorer.restore(asleep[start : start + BATCH])
    took_s = time.perf_counter() - began_s
    if not all(live.exist_many(asleep[-BATCH:])):
        raise AssertionError("not all came back")
    return len(asleep) / took_s


def _rebuild(travellers: Travellers, count: int) -> float:
    connections = travellers.connections
    travellers.wipe()
    began_s = time.perf_counter()
    result = jobs.run("reconciler", connections, lambda group: 1)
    took_s = time.perf_counter() - began_s
    if result.rebuilt != count:
        raise AssertionError(f"{result.rebuilt} of {count} came back")
    return took_s


def _go_on(travellers: Travellers, queued: Sequence[Traveller]) -> None:
    """Those that were in the middle are ended, as their next worker would."""
    live = travellers.connections.live
    for start in range(0, len(queued), BATCH):
        batch = queued[start : start + BATCH]
        found = live.fields_many([each.tx_id for each in batch])
        pairs = [(each.tx_id, int(f["sequence"])) for each, f in zip(batch, found, strict=True)]
        claims: list[Any] = list(live.claim_many(pairs, "travellers"))
        travellers.finish(
            [replace(each, fence=claim.fence) for each, claim in zip(batch, claims, strict=True)]
        )


# Memory.


class Memory:
    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._before = stack.memory_bytes()
        self.samples: list[Sample] = []

    def note(self, passed: int) -> None:
        used = self._stack.memory_bytes() - self._before
        self.samples.append(Sample(passed, used / MEGABYTE))


def _pass_through(travellers: Travellers, sizes: Sizes, memory: Memory, step: Step) -> None:
    """All others, with the archiver at work; then a moment for what has left to be gone."""
    passed, total = sizes.live, 2 * sizes.each_kind
    every = max(BATCH, total // 10)
    for number, batch in enumerate(travellers.depart(total - sizes.live, accepted=False)):
        step.doing(f"{passed:,} have passed")
        if number % 2:
            travellers.finish(batch)
        else:
            travellers.sleep(batch)
        passed += len(batch)
        if number % 5 == 4:
            _whole_run(travellers)
        if passed % every < len(batch):
            memory.note(passed)
        step.done()
    _whole_run(travellers)
    live = travellers.connections.live
    ends_s = time.monotonic() + 30
    pattern = live.keys.in_shard("*", "stateH:*")
    while time.monotonic() < ends_s and any(True for _ in live.redis.scan_iter(pattern, 10_000)):
        time.sleep(0.5)
    memory.note(passed)


def _report(
    report: Report,
    sizes: Sizes,
    writing: dict[str, float],
    per_s: float,
    rebuilt_s: float,
    samples: Sequence[Sample],
) -> None:
    raw = writing["copy"]
    report.table(
        f"Archived states a second, {BATCH:,} to a commit (bar: {RATIO_BAR} of raw COPY)",
        ("what it includes", "states/s", "of raw COPY"),
        (
            ("raw COPY: ready text into a table with the same indexes", f"{raw:,.0f}", "1.00"),
            (
                "the archiver's SQL: role checked, older copies replaced, text made",
                f"{writing['save']:,.0f}",
                f"{writing['save'] / raw:.2f}",
            ),
            (
                "its whole run: read Redis, journal to SQL, states to SQL, confirm",
                f"{writing['run']:,.0f}",
                f"{writing['run'] / raw:.2f}",
            ),
        ),
    )
    report.table(
        "Coming back from SQL",
        ("", "figure", "bar"),
        (
            ("resurrections a second, 1,000 at a time", f"{per_s:,.0f}", ""),
            (
                f"seconds to rebuild {sizes.live:,} after a wipe (half asleep, half queued)",
                f"{rebuilt_s:.1f}",
                f"{REBUILD_BAR_S * sizes.live / 100_000:.1f}",
            ),
        ),
    )
    total = 2 * sizes.each_kind
    report.say(
        f"[bold]Redis while {sizes.each_kind:,} fall asleep and {sizes.each_kind:,} end, MB "
        f"(bar at the end: {MEMORY_BAR_MB:.0f})[/bold]"
    )
    longest = max(each.megabytes for each in samples)
    for number, each in enumerate(samples):
        bar = "█" * max(1, round(each.megabytes / longest * BAR_CHARS))
        when = "at rest" if number == len(samples) - 1 and each.passed >= total else ""
        report.say(f"{each.passed:>10,} {bar} {each.megabytes:,.1f} {when}")
