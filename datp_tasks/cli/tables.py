"""How summaries look on a terminal and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from datp_tasks.record.types import Summary

__all__ = ["as_mapping", "print_json", "print_summary"]

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


def as_mapping(summary: Summary) -> dict[str, Any]:
    """In the words of the API."""
    from datp_tasks.api.serializers import summary_json

    return summary_json(summary)


def print_json(console: Console, value: Any) -> None:
    """Plain text, so that it can be piped."""
    console.file.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def print_summary(console: Console, summary: Summary) -> None:
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
    if summary.expires_at and not summary.is_final:
        table.add_row("expires", f"{summary.expires_at:%Y-%m-%d %H:%M:%S %Z}")
    if summary.completed_at:
        took_s = (summary.completed_at - summary.created_at).total_seconds()
        table.add_row(
            "ended", f"{summary.completed_at:%Y-%m-%d %H:%M:%S %Z} (after {took_s:.3f} s)"
        )
    console.print(table)
