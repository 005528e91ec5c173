"""Break the product in every way of the list, and tell which of them no test has seen.

python -m tests.mutants [--only NAME]… [--jobs 2] [--list] [--unchecked]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.mutants.mutant import Mutant, load
from tests.mutants.workshop import Result, TestRun, Workshop, workshop

#: Of all mutants so many must be found.
FOUND_SHARE = 0.95
#: Of the output of a run that should have been green, what is shown.
OUTPUT_LINES = 40
#: Width of the tables where there is no terminal.
LOG_CHARS = 180


class Benches:
    """Workshops that wait for work, one for each job."""

    def __init__(self, workshops: Sequence[Workshop]) -> None:
        self._free: SimpleQueue[Workshop] = SimpleQueue()
        for each in workshops:
            self._free.put(each)

    def try_out(self, mutant: Mutant) -> Result:
        bench = self._free.get()
        try:
            return bench.try_out(mutant)
        finally:
            self._free.put(bench)

    def test(self, tests: Sequence[str]) -> TestRun:
        bench = self._free.get()
        try:
            return bench.test(tests)
        finally:
            self._free.put(bench)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_CHARS)
    mutants = [each for each in load() if not options.only or each.name in options.only]
    unknown = set(options.only) - {each.name for each in mutants}
    if unknown or not mutants:
        console.print(f"there is no mutant {', '.join(sorted(unknown))}; --list shows them all")
        return 2
    if options.list:
        console.print(_listing(mutants))
        return 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="datp-mutants-")))
        console.print(f"{len(mutants)} mutants, {options.jobs} at a time; starting servers")
        shops = [stack.enter_context(workshop(folder / str(n))) for n in range(options.jobs)]
        with ThreadPoolExecutor(options.jobs) as pool:
            try:
                benches = Benches(shops)
                if not options.unchecked and not _is_sound(benches, pool, mutants, console):
                    return 2
                results = _tried_out(benches, pool, mutants, console)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for shop in shops:
                    shop.stop()
                raise
    return _report(results, console)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this one, or these"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at a time")
    parser.add_argument("--list", action="store_true", help="show the list and try nothing")
    parser.add_argument(
        "--unchecked",
        action="store_true",
        help="do not run the tests without a mutant first: what is red anyway counts as found",
    )
    return parser.parse_args(arguments)


def _is_sound(
    benches: Benches, pool: ThreadPoolExecutor, mutants: Sequence[Mutant], console: Console
) -> bool:
    """Tests that are red anyway would find everything: they must be green first."""
    by_file: dict[str, set[str]] = {}
    for test in (test for each in mutants for test in each.tests):
        by_file.setdefault(test.partition("::")[0], set()).add(test)
    # Where a whole file is named, its single tests need not be.
    wanted = [[file] if file in tests else sorted(tests) for file, tests in by_file.items()]
    runs = [pool.submit(benches.test, tests) for tests in wanted]
    with _progress(console) as progress:
        task = progress.add_task("without a mutant", total=len(runs), last="")
        for run in as_completed(runs):
            found = run.result()
            progress.advance(task)
            if found.code != 0:
                for each in runs:
                    each.cancel()
                console.print("\n".join(found.output.splitlines()[-OUTPUT_LINES:]), markup=False)
                console.print(f"[red]red without any mutant: {found.seen_by or 'a test run'}")
                return False
    return True


def _tried_out(
    benches: Benches, pool: ThreadPoolExecutor, mutants: Sequence[Mutant], console: Console
) -> list[Result]:
    futures: dict[Future[Result], int] = {
        pool.submit(benches.try_out, each): place for place, each in enumerate(mutants)
    }
    results: dict[int, Result] = {}
    with _progress(console) as progress:
        task = progress.add_task("mutants", total=len(mutants), last="")
        for future in as_completed(futures):
            result = results[futures[future]] = future.result()
            if result.verdict != "found" or not console.is_terminal:
                style = "" if result.verdict == "found" else "red"
                line = f"{result.mutant.name}: {result.verdict} ({result.seconds:.0f} s)"
                console.print(line, style=style, highlight=False)
            progress.update(task, advance=1, last=result.mutant.name)
    return [results[place] for place in sorted(results)]


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}"),
        console=console,
    )


def _listing(mutants: Sequence[Mutant]) -> Table:
    table = Table("mutant", "file", "rings", "what would go wrong")
    for each in mutants:
        rings = ", ".join(each.rings)
        table.add_row(each.name, each.file.removeprefix("datp_tasks/"), rings, each.harm)
    return table


def _report(results: Sequence[Result], console: Console) -> int:
    table = Table("part", "mutant", "", "s", "seen by, or what would go wrong")
    for each in results:
        is_found = each.verdict == "found"
        detail = each.seen_by.removeprefix("tests/") if is_found else each.mutant.harm
        verdict = f"[green]{each.verdict}" if is_found else f"[red]{each.verdict}"
        seconds = f"{each.seconds:.0f}"
        table.add_row(each.mutant.part, each.mutant.name, verdict, seconds, detail)
    console.print(table)
    for each in results:
        if each.verdict == "tests cannot run":
            console.print(f"[red]{each.mutant.name}:")
            console.print("\n".join(each.output.splitlines()[-OUTPUT_LINES:]), markup=False)
    found = sum(each.verdict == "found" for each in results)
    console.print(f"{found} of {len(results)} found ({found / len(results):.1%})")
    late = [each.mutant.name for each in results if each.is_late]
    if late:
        console.print(f"found only because a test took too long: {' '.join(late)}; try them alone")
    is_list_right = all(each.verdict in ("found", "NOT FOUND") for each in results)
    return 0 if is_list_right and found >= FOUND_SHARE * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
