"""How long the transactions of a worker stand still after `kill -9`, with default settings."""

from __future__ import annotations

from statistics import median

from benchmarks.bench import Bench
from benchmarks.report import Figures
from benchmarks.resume_stand import ResumeStand

BAR_S = 15.0
#: For a quick run, in which only the way of measuring is tried.
QUICK = {"node_beat_ms": 200, "node_stale_ms": 1_000, "node_grace_ms": 300, "reaper_period_s": 0.3}


def run(bench: Bench) -> Figures:
    rounds = bench.choose(8, 1)
    seconds: list[float] = []
    stand = ResumeStand(bench.stack, **bench.choose({}, QUICK))
    try:
        with bench.report.progress("resume", rounds) as step:
            for number in range(rounds):
                step.doing(f"kill {number + 1} of {rounds}")
                seconds += stand.round(number)
                step.done()
    finally:
        stand.close()
    # Of so few the 99th percentile is the slowest.
    p99 = max(seconds)
    bench.report.table(
        f"kill -9 of a busy worker, {rounds} times: until its transactions go on elsewhere",
        ("", "seconds"),
        (
            (f"median of {len(seconds)}", f"{median(seconds):.1f}"),
            ("slowest", f"{p99:.1f}"),
            ("bar", f"{BAR_S:.1f}"),
        ),
    )
    return {"resume_after_kill_p99_s": p99}
