"""`datp keys …`: API keys, and what their owners may do."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.api.serializers import key_json
from datp_tasks.cli.command_context import connect
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list, short_time
from datp_tasks.model.actor import Role
from datp_tasks.model.grants import Grants
from datp_tasks.record.api_keys import ApiKey, ApiKeys, OwnerLimits

app = typer.Typer(help="API keys, and the limits of their owners.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DAY_S = 86_400


def _keys() -> ApiKeys:
    return connect().api_keys


def add_commands(root: typer.Typer) -> None:
    root.add_typer(app, name="keys")


@app.command()
def create(
    owner: Annotated[str, typer.Option(help="Whose transactions it is for.")],
    role: Annotated[
        Role | None, typer.Option(help="For an operator: it sees every owner. None: a client's.")
    ] = None,
    grant: Annotated[
        list[str] | None,
        typer.Option(
            help="What it may do, instead of what is safe by default: read, cancel, wake, "
            "submit:<pipeline>, switch:<name>, batch:<service>, endpoints; again for each."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What it is for, for people.")] = None,
    expires_in_days: Annotated[
        float | None, typer.Option(min=0.001, max=36_500, help="It ends by itself then.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is shown now and never again."""
    expires_in_s = None if expires_in_days is None else expires_in_days * DAY_S
    made = _keys().create(
        owner,
        role,
        grants=Grants.parse(grant) if grant else None,
        actor=connect().actor,
        name=name,
        expires_in_s=expires_in_s,
    )
    if as_json:
        print_json(Console(), {**key_json(made.key), "key": made.text})
        return
    typer.echo(made.text)
    typer.echo("Keep it safe: only a hash of it is stored, so it cannot be shown again.", err=True)


@app.command("list")
def list_(
    owner: Annotated[str | None, typer.Option(help="Only keys of this owner.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show all keys, without their secrets."""
    found = _keys().list(owner)
    console = Console()
    if as_json:
        print_json(console, [key_json(each) for each in found])
        return
    rows = [
        (
            each.id,
            _state(each),
            str(each.role or "client"),
            short_time(each.last_used_at) if each.last_used_at else "never",
            escape(each.owner),
            escape(each.name or ""),
        )
        for each in found
    ]
    # When each was made is in the JSON: here it would leave no room for names.
    columns = ("id", "state", "role", "last used", "owner", "name")
    table = list_table(columns, rows, whole=columns[:4])
    print_list(console, table, empty="no keys; `datp keys create` makes one")
    for each in found:
        if each.role is None or each.grants is not None:
            # On lines of their own: beside the names they would be folded to shreds.
            console.print(f"{each.id} may {_may(each.grants)}", highlight=False, markup=False)


def _may(grants: Grants | None) -> str:
    if grants is None:
        return "what a client may by default"
    return " ".join(grants.texts) or "do nothing: its list of grants is empty"


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="Its id: what follows `datp_` in it.")],
    reason: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
) -> None:
    """End a key. Every process refuses it within seconds."""
    if _keys().revoke(key_id, actor=connect().actor, reason=reason):
        typer.echo("revoked")
    else:
        typer.echo("it was revoked before")


@app.command()
def limit(
    owner: Annotated[str, typer.Argument(help="Whose limits.")],
    requests_per_s: Annotated[
        float | None, typer.Option(min=0.001, help="How many requests a second.")
    ] = None,
    burst_max: Annotated[int | None, typer.Option(min=1, help="How many at once.")] = None,
    in_flight_max: Annotated[
        int | None, typer.Option(min=0, help="How many transactions that have not ended.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="As the settings say, again.")] = False,
) -> None:
    """Show or change what an owner may do. What was never given is as the settings say."""
    keys = _keys()
    now = keys.limits(owner)
    given = (requests_per_s, burst_max, in_flight_max)
    if reset or any(each is not None for each in given):
        before = (
            (None, None, None) if reset else (now.requests_per_s, now.burst_max, now.in_flight_max)
        )
        per_s, burst, in_flight = (
            old if new is None else new for new, old in zip(given, before, strict=True)
        )
        now = OwnerLimits(
            requests_per_s=per_s,
            burst_max=None if burst is None else int(burst),
            in_flight_max=None if in_flight is None else int(in_flight),
        )
        keys.set_limits(owner, now, actor=connect().actor)
    for name in ("requests_per_s", "burst_max", "in_flight_max"):
        value = getattr(now, name)
        typer.echo(f"{name.replace('_', ' ')}: {'as the settings say' if value is None else value}")


def _state(key: ApiKey) -> str:
    if key.revoked_at:
        return f"revoked {short_time(key.revoked_at)}"
    return f"until {key.expires_at:%Y-%m-%d}" if key.expires_at else "live"
