"""The timeout handler beside the seed's: same data, same server, same run.

Both read the log in windows while it grows. At three sizes both are asked for a tick with nothing
new and one with many due. The other variants of the data are measured once all of it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.bench import Bench
from benchmarks.report import BAR_CHARS, Figures, Report, Step
from benchmarks.timeout_contest import Contest, Sizes, Times, contest
from benchmarks.transfers import VARIANTS

#: The seed's own size takes a quarter of an hour, nearly all of it the seed's.
LONG = Sizes(1_000_000, 1_000, (100_000, 1_000_000, 3_500_000), 100_000, 1_000)
FULL = Sizes(300_000, 300, (100_000, 500_000, 1_000_000), 100_000, 1_000)
QUICK = Sizes(8_000, 80, (2_000, 10_000, 28_000), 2_000, 50)
#: What the three marks are called in `latest.json`; a quick run has the names of the long one.
LONG_NAMES = ("100k", "1000k", "3500k")
FULL_NAMES = ("100k", "500k", "1000k")
#: Windows at the end, when about as many are live as ever will be.
STEADY = 5


@dataclass(frozen=True)
class Mark:
    """What was measured at one size."""

    rows: int
    live: tuple[int, int]
    window: Times
    idle: Times
    due: Times


def run(bench: Bench) -> Figures:
    sizes = bench.choose(FULL, QUICK, LONG)
    names = bench.choose(FULL_NAMES, LONG_NAMES, LONG_NAMES)
    pieces = sizes.transfers * 32 // 9 // sizes.window + 2
    steady: dict[str, Times] = {}
    with bench.report.progress("timeouts", pieces * len(VARIANTS)) as step:
        with contest(bench.stack, "interleaved", sizes) as found:
            marks, steady["interleaved"] = _grow(found, sizes, step)
            naive_ms = found.without_intermediate_ms()
        for variant in ("contiguous", "finalised"):
            with contest(bench.stack, variant, sizes) as found:
                steady[variant] = _at_the_end(found, sizes, step)
    _report(bench.report, sizes, marks, steady, naive_ms)
    return _figures(names, marks, steady)


def _grow(found: Contest, sizes: Sizes, step: Step) -> tuple[list[Mark], Times]:
    """Window after window, with a longer stop at each mark."""
    windows, marks = Times(), []
    for mark in sizes.marks:
        while found.loader.loaded < mark:
            _load(found, sizes, step)
            found.window(windows)
        found.catch_up()
        step.doing(f"ticks at {mark:,} rows")
        idle, due = found.idle(), found.due()
        marks.append(Mark(mark, found.live_rows(), windows.last(STEADY), idle, due))
    return marks, windows.last(STEADY)


def _at_the_end(found: Contest, sizes: Sizes, step: Step) -> Times:
    """All but the last windows at once, then those one by one."""
    last = sizes.marks[-1]
    while found.loader.loaded < last - STEADY * sizes.window:
        _load(found, sizes, step)
    found.catch_up()
    windows = Times()
    while found.loader.loaded < last:
        _load(found, sizes, step)
        found.window(windows)
    return windows


def _load(found: Contest, sizes: Sizes, step: Step) -> None:
    step.doing(f"{found.loader.loaded:,} rows")
    found.loader.load(sizes.window)
    step.done()


def _figures(names: Sequence[str], marks: list[Mark], steady: dict[str, Times]) -> Figures:
    windows, last = steady["interleaved"], marks[-1]
    figures = {
        "timeout_window_ratio_to_seed": windows.ratio(),
        "timeout_window_ms": median(windows.ours),
        "timeout_seed_window_ms": median(windows.seed),
        "timeout_1000_due_ms": median(last.due.ours),
        "timeout_seed_1000_due_ms": median(last.due.seed),
    }
    for name, mark in zip(names, marks, strict=True):
        seed_ms, ours_ms = mark.idle.medians()
        figures[f"timeout_idle_tick_ms_{name}"] = ours_ms
        figures[f"timeout_seed_idle_tick_ms_{name}"] = seed_ms
    for variant, times in steady.items():
        figures[f"timeout_window_ratio_to_seed_{variant}"] = times.ratio()
    return figures


def _report(
    report: Report, sizes: Sizes, marks: list[Mark], steady: dict[str, Times], naive_ms: float
) -> None:
    report.table(
        f"Timeouts while the log grows (interleaved): ms, the seed's SQL / ours; windows of "
        f"{sizes.window:,} rows",
        ("rows of the log", "live rows", "a window", "nothing new", f"{sizes.due:,} due"),
        [
            (
                f"{mark.rows:,}",
                f"{mark.live[0]:,} / {mark.live[1]:,}",
                _both(mark.window),
                _both(mark.idle),
                _both(mark.due),
            )
            for mark in marks
        ],
    )
    report.table(
        f"A window of {sizes.window:,} rows when {sizes.marks[-1]:,} are there: median of {STEADY}",
        ("data", "seed ms", "ours ms", "ratio"),
        [
            (variant, *(f"{each:,.0f}" for each in times.medians()), f"{times.ratio():.1f}")
            for variant, times in steady.items()
        ],
    )
    _plot(report, marks)
    report.say(
        f"Without any intermediate table, one query over everything: {naive_ms:,.0f} ms.\n"
        "The seed's live rows are more: its clean-up forgets transfers that are being settled.\n"
        "A tick with many due: the seed lists and marks them; ours ends each in SQL and Redis."
    )


def _both(times: Times) -> str:
    seed, ours = times.medians()
    return f"{seed:,.1f} / {ours:,.1f}"


def _plot(report: Report, marks: list[Mark]) -> None:
    """How each grows; one scale for all of a kind."""
    kinds = {
        "a window": [mark.window for mark in marks],
        "a tick with nothing new": [mark.idle for mark in marks],
        "a tick with many due": [mark.due for mark in marks],
    }
    for title, measured in kinds.items():
        longest = max(max(times.medians()) for times in measured)
        report.say(f"[bold]{title}, ms[/bold]")
        for mark, times in zip(marks, measured, strict=True):
            for who, value in zip(("seed", "ours"), times.medians(), strict=True):
                bar = "█" * round(value / longest * BAR_CHARS) or "▏"
                report.say(f"{mark.rows:>11,} {who} {bar} {value:,.1f}")
