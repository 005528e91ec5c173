"""`datp retention …`: how long what an owner or a pipeline has is kept."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.cli.command_context import connect
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list
from datp_tasks.record.retention_rules import DAYS_MAX, RetentionRule

app = typer.Typer(help="How long what an owner or a pipeline has is kept.", no_args_is_help=True)


class Kind(StrEnum):
    OWNER = "owner"
    PIPELINE = "pipeline"


KindOf = Annotated[Kind, typer.Argument(help="owner or pipeline")]
Name = Annotated[str, typer.Argument(help="Name of the owner or the pipeline.")]
Reason = Annotated[str, typer.Option(help="Why; it is kept in the audit table.")]
BreakGlass = Annotated[
    bool, typer.Option("--break-glass", help="Act alone; an alert stays for another person.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def add_commands(root: typer.Typer) -> None:
    root.add_typer(app, name="retention")


@app.command("list")
def list_rules(as_json: AsJson = False) -> None:
    """Show every rule. What has none is kept as the settings say."""
    found = connect().operator.retention.all()
    console = Console()
    if as_json:
        rows = [{"kind": each.kind, "name": each.name, "days": each.days} for each in found]
        print_json(console, rows)
        return
    shown = [(each.kind, escape(each.name), str(each.days)) for each in found]
    none = "there is no rule: everything is kept as the settings say"
    print_list(console, list_table(("kind", "name", "days"), shown, whole=("kind",)), empty=none)


@app.command("set")
def set_rule(
    kind: KindOf,
    name: Name,
    days: Annotated[int, typer.Argument(min=1, max=DAYS_MAX, help="Days after its end.")],
    reason: Reason,
    break_glass: BreakGlass = False,
) -> None:
    """Keep its transactions for so long after their end, in every table; then drop them."""
    rule = RetentionRule(kind.value, name, days)
    context = connect()
    context.operator.retention.set(
        rule, actor=context.actor, reason=reason, break_glass=break_glass
    )
    typer.echo(f"what {kind} {name} has is kept for {days} days after its end")


@app.command("remove")
def remove_rule(kind: KindOf, name: Name, reason: Reason, break_glass: BreakGlass = False) -> None:
    """Take a rule away. Exit code 1: there is none."""
    context = connect()
    done = context.operator.retention.remove(
        kind.value, name, actor=context.actor, reason=reason, break_glass=break_glass
    )
    typer.echo("removed: the settings count again" if done else "there is no such rule")
    if not done:
        raise typer.Exit(1)
