"""The command: `python -m benchmarks [--only PART] [--quick | --long]`."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.parts import DEFAULT, PARTS
from benchmarks.report import LATEST, Figures, Report, save
from benchmarks.stack import DATA, EMPTY_STEP_PROCESSES, PROCESSES, Stack

#: A virtual machine that was busy is slower for a while, whatever it does.
REST_S = 30.0


def main() -> int:
    options = _options()
    report = Report()
    with Stack(options.data) as stack:
        for server, setting in stack.durability():
            report.say(f"[bold]{server}[/bold]: {setting}")
        report.say(
            f"One worker with {PROCESSES} processes on each side ({EMPTY_STEP_PROCESSES} for "
            "throughput and sustained); everything on one machine."
        )

        def run(name: str) -> Figures:
            bench = Bench(stack, report, quick=options.quick, long=options.long)
            return run_alone(name, bench)

        failed = run_all(options.only or DEFAULT, run, report, options.output)
    return 1 if failed else 0


def run_alone(name: str, bench: Bench) -> Figures:
    """One part, on servers that hold nothing of another, with processes that end with it."""
    bench.stack.renew()
    if not bench.quick:
        time.sleep(REST_S)
    try:
        figures: Figures = importlib.import_module(f"benchmarks.parts.{name}").run(bench)
    finally:
        bench.close()
    return figures


def run_all(
    names: Sequence[str], run: Callable[[str], Figures], report: Report, output: Path
) -> list[str]:
    """Every part, also after one that failed; those that failed are named at the end."""
    took_s: dict[str, float] = {}
    failed: dict[str, str] = {}
    for name in names:
        report.say("")
        began_s = time.monotonic()
        try:
            # After each part: what was measured is not lost when a later part fails.
            save(run(name), output)
        except Exception as error:
            failed[name] = traceback.format_exc()
            report.fail(name, str(error))
        took_s[name] = time.monotonic() - began_s
    report.table(
        f"{sum(took_s.values()):.0f} s in all",
        ("part", "seconds", ""),
        [
            (name, f"{seconds:.0f}", "failed" if name in failed else "")
            for name, seconds in took_s.items()
        ],
    )
    for name, trace in failed.items():
        report.fail(name, trace)
    report.say(f"{output} has the figures.")
    return list(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", choices=PARTS, metavar="PART", action="append", help=", ".join(PARTS)
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    size.add_argument("--long", action="store_true", help="large data, in about an hour")
    parser.add_argument("--output", type=Path, default=LATEST, help="file to merge figures into")
    parser.add_argument("--data", type=Path, default=DATA, help="folder for the servers' data")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
