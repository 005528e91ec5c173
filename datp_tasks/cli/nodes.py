"""`datp nodes`: who lives, what each offers and how busy it is."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from datp_tasks.cli.command_context import connect
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list
from datp_tasks.live.nodes import Node

#: Exit code, for scripts: no node is alive.
NO_NODE = 3


def add_commands(app: typer.Typer) -> None:
    app.command()(nodes)


def nodes(
    group: Annotated[str | None, typer.Option(help="Only those of this group.")] = None,
    host: Annotated[str | None, typer.Option(help="Only those of this host.")] = None,
    step_types: Annotated[
        bool, typer.Option("--steps", help="Show the step types that each offers.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show the live nodes. Exit code 3: there is none."""
    context = connect()
    found = [
        node
        for node in context.nodes.nodes()
        if group in (None, node.group) and host in (None, node.record.get("host"))
    ]
    console = Console()
    if as_json:
        print_json(console, [{"group": node.group, **node.record} for node in found])
    else:
        _print(console, found, context.live.server_now_ms(), step_types)
    if not found:
        raise typer.Exit(NO_NODE)


def _print(console: Console, found: list[Node], now_ms: int, step_types: bool) -> None:
    rows = []
    for node in found:
        record, load = node.record, node.load
        rows.append(
            (
                *(node.name, node.group, _busy(load), _ago(now_ms - node.joined_ms)),
                _ago(now_ms - int(record.get("beatMs", now_ms))),
                *(f"{load.get('hopsPerS', 0):g}", f"{load.get('transactionsPerS', 0):g}"),
                *(record.get("version") or "-", record.get("build") or "-"),
            )
        )
    columns = ("node", "group", "busy", "up", "beat", "hops/s", "tx/s", "version", "build")
    print_list(console, list_table(columns, rows, whole=columns[:5]), empty="no node is alive")
    if step_types:
        for node in found:
            worker, steps = node.record.get("worker") or "-", ", ".join(node.step_types)
            console.print(f"{node.name} ({worker}): {steps}", highlight=False)


def _busy(load: dict[str, Any]) -> str:
    return f"{load.get('busy', 0)}/{load.get('slots', 1)} ({load.get('busyShare', 0):.0%})"


def _ago(ms: int) -> str:
    seconds = max(ms, 0) / 1_000
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.0f} h"
