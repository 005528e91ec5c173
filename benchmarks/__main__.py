"""The command: `python -m benchmarks [--only PART] [--quick]`."""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.parts import DEFAULT, PARTS
from benchmarks.report import LATEST, Figures, Report, save
from benchmarks.stack import DATA, PROCESSES, Stack


def main() -> None:
    options = _options()
    names = options.only or list(DEFAULT)
    report = Report()
    began_s = time.monotonic()
    figures: Figures = {}
    with Stack(options.data) as stack:
        for server, setting in stack.durability():
            report.say(f"[bold]{server}[/bold]: {setting}")
        report.say(
            f"One worker with {PROCESSES} processes on each side; everything on one machine."
        )
        bench = Bench(stack, report, quick=options.quick)
        for name in names:
            report.say("")
            part = importlib.import_module(f"benchmarks.parts.{name}")
            figures |= part.run(bench)
            # After each part: what was measured is not lost when a later part fails.
            save(figures, options.output)
    report.say(f"\n{options.output} has the figures; {time.monotonic() - began_s:.0f} s in all.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", choices=PARTS, metavar="PART", action="append", help=", ".join(PARTS)
    )
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    parser.add_argument("--output", type=Path, default=LATEST, help="file to merge figures into")
    parser.add_argument("--data", type=Path, default=DATA, help="folder for the servers' data")
    return parser.parse_args()


if __name__ == "__main__":
    main()
