"""`datp logs`: what the steps of a transaction have said."""

from __future__ import annotations

import json
import logging
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.api.serializers import line_json
from datp_tasks.cli.command_context import connect
from datp_tasks.model.log_lines import LogLine
from datp_tasks.model.plan import path_words

COLOURS = {"warning": "yellow", "error": "red", "critical": "bold red"}
LEVELS = ("info", "warning", "error")
PAGE = 500
FOLLOW_S = 1.0


def add_commands(app: typer.Typer) -> None:
    app.command()(logs)


def logs(
    tx_id: Annotated[str, typer.Argument(help="Transaction id.")],
    level: Annotated[str, typer.Option(help=f"From which on: {', '.join(LEVELS)}.")] = "info",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the transaction has ended.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show what the steps of a transaction have logged."""
    if level not in LEVELS:
        raise typer.BadParameter(f"{level!r} is not one of {', '.join(LEVELS)}")
    context, console, after = connect(), Console(), None
    while True:
        # Asked first: what was logged before the end is read after it.
        is_over = not follow or context.client.status(tx_id).is_final
        page = context.operator.logs.page(tx_id, after=after, rows_max=PAGE)
        for line in page.lines:
            after = line.cursor
            if line.is_sealed or _number(line.level) >= _number(level):
                _print(console, line, as_json)
        if page.next_cursor is None:
            if is_over:
                return
            time.sleep(FOLLOW_S)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping().get(level.upper(), logging.INFO)


def _print(console: Console, line: LogLine, as_json: bool) -> None:
    if as_json:
        console.file.write(json.dumps(line_json(line), ensure_ascii=False) + "\n")
        return
    at = f"{line.at:%Y-%m-%d %H:%M:%S}" if line.at else "-"
    colour = COLOURS.get(line.level, "dim")
    where = f"{path_words(line.path)} ({line.step_type})" if line.path else line.step_type
    where += f" #{line.attempt}" if line.attempt > 1 else ""
    fields = "".join(f" {name}={value}" for name, value in (line.fields or {}).items())
    level = f"[{colour}]{line.level or '-':7}[/{colour}]"
    console.print(
        f"{at} {level} {escape(where)}: {escape(line.text + fields)}",
        highlight=False,
        soft_wrap=True,
    )
