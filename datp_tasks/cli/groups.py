"""`datp groups`: what node groups are told, and how their workers stand."""

from __future__ import annotations

import logging
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from datp_tasks.api.serializers import group_json
from datp_tasks.cli.command_context import connect
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list
from datp_tasks.errors import GroupInvalid
from datp_tasks.record.groups import LIMITS, NodeGroup

log = logging.getLogger("datp.cli")

app = typer.Typer(
    help="Node groups: concurrency, roles and pauses of running workers.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="Name of the node group.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def add_commands(root: typer.Typer) -> None:
    root.add_typer(app, name="groups")


@app.command("list")
def list_groups(as_json: AsJson = False) -> None:
    """Show every group that was told something, or that has a live worker."""
    context = connect()
    groups, nodes = context.groups.list(), context.nodes.nodes()
    names = sorted(groups.keys() | {node.group for node in nodes})
    shown = [group_json(groups.get(name, NodeGroup(name, {})), nodes) for name in names]
    console = Console()
    if as_json:
        print_json(console, shown)
        return
    rows = [
        (
            each["name"],
            _concurrency(each["values"].get("concurrency")),
            ", ".join(each["roles"]) or "-",
            str(each["nodes"]),
            str(each["busy"]),
            f"{each['transactionsPerS']:g}",
        )
        for each in shown
    ]
    columns = ("group", "concurrency", "roles", "nodes", "busy", "tx/s")
    none = "no group was told anything, and no worker is alive"
    print_list(console, list_table(columns, rows, whole=("group",)), empty=none)


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show all values of a group, its nodes and its queue."""
    context = connect()
    group = context.groups.list().get(name, NodeGroup(name, {}))
    found = group_json(group, context.nodes.nodes())
    found["messages"] = context.group_queues.waiting([name]).get(name)
    console = Console()
    if as_json:
        print_json(console, found)
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    table.add_column(style="dim")
    table.add_row("group", name)
    table.add_row("nodes", f"{found['nodes']}, {found['busy']} of them busy")
    table.add_row("messages", str(found["messages"]), "waiting in its queue")
    table.add_row("roles", ", ".join(found["roles"]) or "-")
    for key, limit in LIMITS.items():
        value = group.values.get(key)
        table.add_row(key, "default" if value is None else str(value), limit.meaning)
    console.print(table)


@app.command("set")
def set_values(
    name: Name,
    values: Annotated[
        list[str],
        typer.Argument(help=f"name=number or name=default; names: {', '.join(LIMITS)}."),
    ],
    reason: Annotated[str | None, typer.Option(help="Why; kept with the change.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change values of a group: `datp groups set kyc concurrency=4`. 0 stops it."""
    context = connect()
    group = context.groups.set(
        name,
        _changes(values),
        actor=context.actor,
        reason=reason,
        maintenance_group=context.settings.maintenance_group,
    )
    context.group_queues.tell_workers()
    if as_json:
        print_json(Console(), group_json(group, context.nodes.nodes()))
    else:
        typer.echo(f"set; workers of {name} follow within seconds")


def _changes(values: list[str]) -> dict[str, int | None]:
    changes: dict[str, int | None] = {}
    for each in values:
        key, is_pair, text = each.partition("=")
        if not is_pair or not (text == "default" or (text.isascii() and text.isdigit())):
            raise GroupInvalid(f"{each!r} must be name=number or name=default")
        changes[key] = None if text == "default" else int(text)
    return changes


def _concurrency(value: int | None) -> str:
    if value is None:
        return "as started"
    return str(value) if value else "[bold yellow]stopped[/bold yellow]"
