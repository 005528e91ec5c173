"""`datp endpoints`: where owners are told of the events of all their transactions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.cli.command_context import connect
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list, short_time
from datp_tasks.record.webhook_endpoints import Endpoint

app = typer.Typer(help="Webhook endpoints of owners.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Id = Annotated[str, typer.Argument(help="The id of the endpoint.")]
Types = Annotated[
    list[str] | None, typer.Option("--type", help="A type of events; all without this.")
]


def add_commands(root: typer.Typer) -> None:
    root.add_typer(app, name="endpoints")


@app.command("list")
def list_(
    owner: Annotated[str | None, typer.Option(help="Only of this owner.")] = None,
    as_json: AsJson = False,
) -> None:
    """List endpoints, the oldest first."""
    found = connect().webhooks.endpoints.store.find_all(owner=owner)
    console = Console()
    if as_json:
        print_json(console, [_as_mapping(each) for each in found])
        return
    rows = [
        (
            each.id,
            escape(each.owner),
            "enabled" if each.enabled else "[red]disabled[/red]",
            escape(", ".join(each.types) or "all"),
            escape(each.url),
        )
        for each in found
    ]
    table = list_table(("id", "owner", "", "types", "to"), rows, whole=("id",))
    print_list(console, table, empty="no endpoints")


@app.command()
def show(id: Id, as_json: AsJson = False) -> None:
    """Show one endpoint and its last deliveries."""
    context = connect()
    found = context.webhooks.endpoints.store.find(id)
    deliveries = context.webhooks.store.of_endpoint(id, rows_max=20)
    console = Console()
    if as_json:
        last = [{"id": each.id, "state": each.state} for each in deliveries]
        print_json(console, {**_as_mapping(found), "deliveries": last})
        return
    for name, value in _as_mapping(found).items():
        console.print(f"[dim]{name}[/dim] {escape(str(value))}")
    rows = [
        (each.id, each.state, str(each.attempts), short_time(each.created_at))
        for each in deliveries
    ]
    table = list_table(("id", "state", "tries", "made"), rows, whole=("id",))
    print_list(console, table, empty="no deliveries yet")


@app.command()
def add(
    url: Annotated[str, typer.Argument(help="Where to tell.")],
    owner: Annotated[str, typer.Option(help="Whose events.")],
    types: Types = None,
    description: Annotated[str, typer.Option(help="For people.")] = "",
) -> None:
    """Register an endpoint; its secret is shown only now."""
    context = connect()
    made, secret = context.webhooks.endpoints.add(
        owner, url, types=types or (), description=description, actor=context.actor
    )
    typer.echo(made.id)
    typer.echo(secret)


@app.command("set")
def set_(
    id: Id,
    url: Annotated[str | None, typer.Option(help="Where to tell from now on.")] = None,
    types: Types = None,
    all_types: Annotated[
        bool, typer.Option("--all-types", help="Tell of all events but payee.completed.")
    ] = False,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable")] = None,
) -> None:
    """Change an endpoint. What waits for one that is disabled is not sent."""
    context = connect()
    context.webhooks.endpoints.change(
        id,
        url=url,
        types=[] if all_types else types or None,
        description=description,
        enabled=enabled,
        actor=context.actor,
    )
    typer.echo(f"{id} is changed")


@app.command()
def delete(id: Id) -> None:
    """Delete an endpoint and its secrets."""
    context = connect()
    context.webhooks.endpoints.delete(id, actor=context.actor)
    typer.echo(f"{id} is deleted")


@app.command()
def rotate(
    id: Id,
    overlap_s: Annotated[
        float | None, typer.Option(min=0, help="Seconds for which the old secret signs, too.")
    ] = None,
) -> None:
    """Give an endpoint a new secret, which is shown only now."""
    context = connect()
    made = context.webhooks.endpoints.rotate(id, overlap_s=overlap_s, actor=context.actor)
    typer.echo(made)


@app.command()
def test(id: Id) -> None:
    """Send an event that is about nothing."""
    context = connect()
    typer.echo(context.webhooks.endpoints.test(id, actor=context.actor))


@app.command()
def replay(
    id: Id,
    since: Annotated[str, typer.Option("--from", help="Such as 2027-01-31T12:00:00Z.")],
    until: Annotated[str, typer.Option("--to", help="Such as 2027-01-31T13:00:00Z.")],
) -> None:
    """Tell again of what happened in a time."""
    context = connect()
    times = _moment(since, "--from"), _moment(until, "--to")
    context.webhooks.endpoints.replay(id, *times, actor=context.actor)
    typer.echo(f"{id} is told again of what happened from {since} to {until}")


def _moment(text: str, option: str) -> datetime:
    wrong = typer.BadParameter(f"{option} is a time with a zone, as in 2027-01-31T12:00:00Z")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise wrong from None
    if found.utcoffset() is None:
        raise wrong
    return found


def _as_mapping(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "id": endpoint.id,
        "owner": endpoint.owner,
        "url": endpoint.url,
        "types": list(endpoint.types),
        "description": endpoint.description,
        "enabled": endpoint.enabled,
        "disabledReason": endpoint.disabled_reason,
        "createdAt": endpoint.created_at.isoformat(),
        "replayTo": endpoint.replay and endpoint.replay.until.isoformat(),
    }
