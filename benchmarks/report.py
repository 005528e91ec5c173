"""What the reader sees: tables, a progress bar, bars of text, and the file of figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

#: Name -> number; the names are those of `latest.json`.
Figures = dict[str, float]

LATEST = Path(__file__).resolve().parent / "latest.json"
BAR_CHARS = 40


class Report:
    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)

    def say(self, text: str) -> None:
        self.console.print(text)

    def fail(self, name: str, why: str) -> None:
        self.console.print(f"[bold red]{name} failed[/bold red]")
        # Not as markup: a trace has brackets.
        self.console.out(why, highlight=False)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """The first column is text, the others are figures."""
        table = Table(title=title, title_justify="left", title_style="bold")
        for number, column in enumerate(columns):
            table.add_column(column, justify="right" if number else "left")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def bars(self, title: str, values: Mapping[str, float], unit: str) -> None:
        """A plot that a terminal and a log file can both show."""
        longest = max(values.values())
        self.console.print(f"[bold]{title}[/bold]")
        for name, value in values.items():
            bar = "█" * max(1, round(value / longest * BAR_CHARS))
            self.console.print(f"{name:>12} {bar} {value:,.0f} {unit}")

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Step]:
        """A bar for work of so many pieces; gone when the work is done."""
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        shown = self.console.is_terminal
        with Progress(
            *columns, console=self.console, transient=True, disable=not shown
        ) as progress:
            yield Step(progress, title, total)


class Step:
    """Counts the pieces of one progress bar."""

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self._progress = progress
        self._title = title
        self._task = progress.add_task(title, total=total)

    def doing(self, what: str) -> None:
        self._progress.update(self._task, description=f"{self._title}: {what}")

    def done(self) -> None:
        self._progress.advance(self._task)


def save(figures: Figures, path: Path = LATEST) -> None:
    """Merge into the file: figures that this run did not take stay as they were."""
    known: Figures = json.loads(path.read_text()) if path.exists() else {}
    rounded = {name: float(f"{value:.4g}") for name, value in figures.items()}
    path.write_text(json.dumps(dict(sorted({**known, **rounded}.items())), indent=2) + "\n")
