"""`datp webhooks`: deliveries, dead letters, and the secrets that sign."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from datp_tasks.cli.command_context import connect
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list, short_time
from datp_tasks.record.webhooks import SECRET_OVERLAP_S, STATES, Delivery, DeliveryAttempt

app = typer.Typer(help="Webhooks: deliveries, dead letters, secrets.", no_args_is_help=True)
secrets_app = typer.Typer(help="Secrets that sign webhooks.", no_args_is_help=True)
app.add_typer(secrets_app, name="secrets")

COLOURS = {"delivered": "green", "dead": "red", "pending": "cyan", "cancelled": "yellow"}

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Owner = Annotated[str, typer.Option(help="Whose secret.")]


def add_commands(root: typer.Typer) -> None:
    root.add_typer(app, name="webhooks")


@app.command("list")
def list_(
    state: Annotated[str, typer.Option(help=f"One of {', '.join(STATES)}; or all.")] = "dead",
    owner: Annotated[str | None, typer.Option(help="Only of this owner.")] = None,
    tx_id: Annotated[str | None, typer.Option("--tx", help="Only of this transaction.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many to list.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List deliveries, the newest first; those that were given up unless another state is named."""
    if state not in (*STATES, "all"):
        raise typer.BadParameter(f"{state} is none of {', '.join(STATES)} and all")
    store = connect().webhooks.store
    wanted = None if state == "all" else state
    found = store.deliveries(state=wanted, owner=owner, tx_id=tx_id, rows_max=limit)
    console = Console()
    if as_json:
        print_json(console, [_as_mapping(each) for each in found])
        return
    rows = [
        (
            each.id,
            f"[{COLOURS[each.state]}]{each.state}[/{COLOURS[each.state]}]",
            str(each.attempts),
            short_time(each.created_at),
            escape(each.url),
            escape(each.last_error or str(each.last_status or "")),
        )
        for each in found
    ]
    columns = ("id", "state", "tries", "made", "to", "last")
    table = list_table(columns, rows, whole=("id", "state", "made"))
    print_list(console, table, empty="no such deliveries")


@app.command()
def show(
    id: Annotated[str, typer.Argument(help="The webhook-id.")],
    as_json: AsJson = False,
) -> None:
    """Show one delivery, what it says, and every attempt."""
    store = connect().webhooks.store
    delivery, payload, attempts = store.find(id), store.payload(id), store.attempts(id)
    console = Console()
    if as_json:
        shown = _as_mapping(delivery)
        shown |= {"payload": payload, "log": [_attempt(each) for each in attempts]}
        print_json(console, shown)
        return
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_column(style="dim")
    facts.add_column()
    for name, value in _as_mapping(delivery).items():
        facts.add_row(name, "" if value is None else str(value))
    console.print(facts)
    console.print(payload, highlight=False, markup=False, soft_wrap=True)
    rows = [
        (
            str(each.attempt),
            short_time(each.begun_at),
            "" if each.took_ms is None else str(each.took_ms),
            str(each.http_status or ""),
            escape(each.error or ("" if each.ended_at else "no end is known")),
            escape(each.sender),
        )
        for each in attempts
    ]
    columns = ("attempt", "begun", "took ms", "status", "error", "sender")
    table = list_table(columns, rows, whole=("begun", "sender"))
    print_list(console, table, empty="not tried yet")


@app.command()
def redeliver(
    id: Annotated[str | None, typer.Argument(help="The webhook-id.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="All that were given up.")] = False,
    owner: Annotated[str | None, typer.Option(help="Only of this owner.")] = None,
) -> None:
    """Send again: one delivery, or all that were given up. Ids and bodies stay the same."""
    if (id is None) != dead:
        raise typer.BadParameter("name one delivery, or give --dead")
    context = connect()
    webhooks, actor = context.webhooks, context.actor
    if id is not None:
        webhooks.redeliver(id, owner=owner, actor=actor)
        typer.echo(f"{id} is sent again")
        return
    total = 0
    while more := webhooks.redeliver_dead(owner=owner, actor=actor):
        total += more
    typer.echo(f"{total} deliveries are sent again")


@secrets_app.command("show")
def show_secrets(owner: Owner = "local", as_json: AsJson = False) -> None:
    """Show the secrets of an owner that sign now; the first one is made if there is none."""
    store = connect().webhooks.store
    store.signing_secrets({owner})
    found = store.secrets(owner)
    console = Console()
    if as_json:
        print_json(
            console,
            [
                {
                    "secret": each.secret,
                    "createdAt": each.created_at.isoformat(),
                    "retiredAt": each.retired_at.isoformat() if each.retired_at else None,
                }
                for each in found
            ],
        )
        return
    for each in found:
        until = f"until {each.retired_at:%Y-%m-%d %H:%M:%S %Z}" if each.retired_at else "current"
        console.print(f"{each.secret}  [dim]{until}[/dim]", highlight=False, soft_wrap=True)


@secrets_app.command()
def rotate(
    owner: Owner = "local",
    overlap_s: Annotated[
        int | None, typer.Option(min=0, help="How long the old one signs, too (seconds).")
    ] = None,
) -> None:
    """Make a new secret. For a while webhooks carry a signature of each."""
    context = connect()
    wanted_s = SECRET_OVERLAP_S if overlap_s is None else overlap_s
    made = context.webhooks.store.rotate(owner, overlap_s=wanted_s, actor=context.actor)
    typer.echo(made)


def _as_mapping(each: Delivery) -> dict[str, Any]:
    """In the words of the API."""
    return {
        "id": each.id,
        "txId": each.tx_id,
        "sequence": each.sequence,
        "kind": each.kind,
        "owner": each.owner,
        "url": each.url,
        "state": each.state,
        "attempts": each.attempts,
        "nextAt": each.next_at.isoformat() if each.state == "pending" else None,
        "held": each.held,
        "createdAt": each.created_at.isoformat(),
        "finishedAt": each.finished_at.isoformat() if each.finished_at else None,
        "lastStatus": each.last_status,
        "lastError": each.last_error,
    }


def _attempt(each: DeliveryAttempt) -> dict[str, Any]:
    return {
        "attempt": each.attempt,
        "sender": each.sender,
        "begunAt": each.begun_at.isoformat(),
        "endedAt": each.ended_at.isoformat() if each.ended_at else None,
        "httpStatus": each.http_status,
        "error": each.error,
        "tookMs": each.took_ms,
    }
