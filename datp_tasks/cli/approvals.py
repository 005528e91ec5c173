"""`datp approvals …`: what waits for a second person, and deciding about it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.cli.command_context import connect
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list, short_time
from datp_tasks.model.approval import Approval, ApprovalState
from datp_tasks.model.rights import sees_payloads

app = typer.Typer(help="What waits for a second person, and deciding.", no_args_is_help=True)

Number = Annotated[int, typer.Argument(help="Number of the approval.", min=1)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def add_commands(root: typer.Typer) -> None:
    root.add_typer(app, name="approvals")


@app.command("list")
def list_(
    every: Annotated[bool, typer.Option("--all", help="Also what was decided.")] = False,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """Show what waits for a decision, the newest first."""
    state = None if every else ApprovalState.PENDING
    context = connect()
    found = context.operator.approvals.store.page(state=state, rows_max=limit)
    shown = [each.to_json(masked=not sees_payloads(context.actor)) for each in found]
    console = Console()
    if as_json:
        print_json(console, shown)
        return
    rows = [
        (
            str(each.id),
            str(each.state),
            each.action,
            escape(each.subject),
            escape(each.requester),
            f"{each.consents} of {each.needed}",
            short_time(each.expires_at),
            escape(as_shown["reason"] or ""),
        )
        for each, as_shown in zip(found, shown, strict=True)
    ]
    columns = ("number", "state", "action", "subject", "asked by", "agreed", "expires", "reason")
    table = list_table(columns, rows, whole=columns[:3])
    print_list(console, table, empty="no approval is waited for")


@app.command()
def show(number: Number, as_json: AsJson = False) -> None:
    """Show one request: what is to be done, why, and who said what."""
    context = connect()
    found = context.operator.approvals.store.one(number)
    _show(found, as_json, masked=not sees_payloads(context.actor))


@app.command()
def approve(
    number: Number,
    note: Annotated[str, typer.Option(help="What you have checked; it is kept.")] = "",
    as_json: AsJson = False,
) -> None:
    """Agree; the last one whose word is needed makes it happen."""
    context = connect()
    _show(context.operator.approvals.approve(number, context.actor, note=note), as_json)


@app.command()
def reject(
    number: Number,
    note: Annotated[str, typer.Option(help="Why; it is kept.")],
    as_json: AsJson = False,
) -> None:
    """Refuse; one rejection ends the request."""
    context = connect()
    _show(context.operator.approvals.reject(number, context.actor, note=note), as_json)


def _show(found: Approval, as_json: bool, *, masked: bool = False) -> None:
    console = Console()
    if as_json:
        print_json(console, found.to_json(masked=masked))
        return
    for name, value in found.for_people(masked=masked).items():
        if value is not None and name != "decisions":
            console.print(f"{name:14} {value}", markup=False, highlight=False)
    for each in found.given:
        said = f"{each.decision} by {each.decided_by} ({each.actor}) {each.note}"
        console.print(f"  {short_time(each.created_at)} {said}", markup=False, highlight=False)
