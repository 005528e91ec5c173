"""How summaries and lists look on a terminal and as JSON.

A list never cuts what a person copies: ids, names and times stay whole at 80 columns, and what
does not fit is folded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from datp_tasks.model.actor import Actor
    from datp_tasks.record.record_types import Summary

#: What is left of a column that is folded, in the worst case.
FOLDED_CHARS_MIN = 4

COLOURS = {
    "success": "green",
    "failed": "red",
    "aborted": "red",
    "internal-error": "bold red",
    "in-doubt": "bold yellow",
    "cancelled": "yellow",
    "expired": "yellow",
    "sleeping": "cyan",
    "running": "blue",
}


def as_mapping(summary: Summary, actor: Actor | None = None) -> dict[str, Any]:
    """In the words of the API, as this actor may see it; without one, whole."""
    from datp_tasks.api.serializers import summary_json
    from datp_tasks.model.actor import LOCAL

    return summary_json(summary, actor or LOCAL)


def print_json(console: Console, value: Any) -> None:
    """Plain text, so that it can be piped."""
    console.file.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def short_time(moment: datetime | None, now: datetime | None = None) -> str:
    """In UTC: `12:03:55` if that was today, else `Nov 14 12:03`, else `2025-11-14`."""
    if moment is None:
        return "-"
    moment, now = moment.astimezone(UTC), (now or datetime.now(UTC)).astimezone(UTC)
    if moment.date() == now.date():
        return f"{moment:%H:%M:%S}"
    return f"{moment:%b %d %H:%M}" if moment.year == now.year else f"{moment:%Y-%m-%d}"


def list_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    whole: Collection[str],
    title: str | None = None,
) -> Table:
    """A list in which the columns `whole` are never cut or broken; the others are folded."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, title=title)
    table.title_justify, table.title_style = "left", "bold"
    for number, name in enumerate(columns):
        if name in whole:
            cells = (Text.from_markup(row[number]).cell_len for row in rows)
            table.add_column(name, no_wrap=True, min_width=max((len(name), *cells)))
        else:
            table.add_column(name, overflow="fold", min_width=FOLDED_CHARS_MIN)
    for row in rows:
        table.add_row(*row)
    return table


def print_list(console: Console, table: Table, *, empty: str) -> None:
    """Wider than the terminal rather than cut, if the terminal is very narrow.

    `empty` is the sentence for a list without rows: a bare header looks like a fault.
    """
    if not table.row_count:
        # It may quote what a person typed.
        console.print(empty, highlight=False, markup=False)
        return
    needed = sum((column.min_width or 0) + 1 for column in table.columns) - 1
    console.width = max(console.width, needed)
    console.print(table, highlight=False)


def print_summary(console: Console, summary: Summary) -> None:
    summary = summary.masked()
    colour = COLOURS.get(summary.status, "white")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row("transaction", summary.tx_id)
    table.add_row("status", f"[{colour}]{summary.status}[/{colour}]")
    table.add_row("pipeline", f"{summary.pipeline} @ {summary.version}")
    if summary.external_id:
        table.add_row("external id", summary.external_id)
    if summary.note:
        table.add_row("note", summary.note)
    for name, value in (("progress", summary.progress), ("output", summary.output)):
        if value is not None:
            table.add_row(name, json.dumps(value, ensure_ascii=False))
    table.add_row("accepted", f"{summary.created_at:%Y-%m-%d %H:%M:%S %Z}")
    if summary.no_return_at:
        table.add_row("no return since", f"{summary.no_return_at:%Y-%m-%d %H:%M:%S %Z}")
    elif summary.forwarded_at:
        table.add_row("forwarded since", f"{summary.forwarded_at:%Y-%m-%d %H:%M:%S %Z}")
    elif summary.expires_at and not summary.is_final:
        table.add_row("expires", f"{summary.expires_at:%Y-%m-%d %H:%M:%S %Z}")
    if summary.completed_at:
        took_s = (summary.completed_at - summary.created_at).total_seconds()
        table.add_row(
            "ended", f"{summary.completed_at:%Y-%m-%d %H:%M:%S %Z} (after {took_s:.3f} s)"
        )
    console.print(table)
