"""`datp timeouts`: what expires next, and how far behind the timeout handler is."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from datp_tasks.cli.command_context import connect, is_remote
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list, short_time
from datp_tasks.errors import SettingsError
from datp_tasks.record.timeouts import LAG_ALERT_S, NextTimeout, Peek, TimeoutStanding

#: Exit code, for scripts: the handler is further behind than it may be.
BEHIND = 3


#: What the rows that are generated belong to: a pipeline that only waits.
WAITING = "generated-transfer"


def add_commands(app: typer.Typer) -> None:
    group = typer.Typer()
    group.callback(invoke_without_command=True)(timeouts)
    group.command()(generate)
    app.add_typer(group, name="timeouts")


def timeouts(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=0, max=10_000, help="How many to list.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show what expires next. Exit code 3: the handler is too far behind."""
    if context.invoked_subcommand is not None:
        return
    datp = connect()
    store = datp.timeouts
    peek, standing, due = store.peek(), store.standing(), store.next_due(limit)
    is_behind = peek.lag_s > LAG_ALERT_S
    if is_remote():
        # The server may be of another release.
        is_behind = peek.is_alarmed
    console = Console()
    if as_json:
        print_json(console, _as_mapping(peek, standing, due, is_behind))
    else:
        _print(console, peek, standing, due, is_behind)
    if is_behind:
        raise typer.Exit(BEHIND)


def generate(
    *,
    total: Annotated[int, typer.Option(help="How many transfers.")] = 100_000,
    expired: Annotated[int, typer.Option(help="How many of them are overdue.")] = 1_000,
    amount: Annotated[tuple[float, float], typer.Option(help="From, to.")] = (1, 100),
    currency: Annotated[list[str] | None, typer.Option(help="One of the currencies.")] = None,
    hours: Annotated[tuple[float, float], typer.Option(help="Away from now: from, to.")] = (0, 168),
    seed: Annotated[str, typer.Option(help="Another one makes other ids.")] = "1",
    force: Annotated[bool, typer.Option("--force", help="Beside real transactions.")] = False,
) -> None:
    """Fill a database with transfers, to try the timeout handler on it."""
    from datp_tasks.model.pipeline import Pipeline
    from datp_tasks.record.generated import Dataset, GeneratedTransfers

    datp = connect()
    transfers = GeneratedTransfers(datp.engine, datp.record.clock)
    if not force and transfers.has_others():
        raise SettingsError(
            "this database has real transactions; generated ones do not belong there. "
            "Use a database of its own, or --force if you mean it"
        )
    waiting = Pipeline(WAITING).step("util/wait", params={"switch": "go"}).build()
    version = datp.pipelines.apply(waiting).version
    wanted = Dataset(
        total_count=total,
        expired_count=expired,
        amount=amount,
        currency_list=tuple(currency or Dataset().currency_list),
        hours_diff=hours,
        seed=seed,
    )
    count = transfers.insert(
        wanted,
        pipeline=(WAITING, version),
        shards=datp.settings.shards,
        progress=lambda done: typer.echo(f"{done} of {total}", err=True),
    )
    typer.echo(f"{count} transfers generated, {expired} of them overdue")


def _as_mapping(
    peek: Peek, standing: TimeoutStanding, due: list[NextTimeout], is_behind: bool
) -> dict[str, Any]:
    changed_at = standing.changed_at
    return {
        "lagSeconds": peek.lag_s,
        "behind": is_behind,
        "segment": {
            "value": standing.value,
            "xact": standing.xact,
            "changedAt": changed_at.isoformat() if changed_at else None,
        },
        "watched": standing.watched,
        "due": standing.due,
        "next": [
            {
                "txId": each.tx_id,
                "pipeline": each.pipeline,
                "owner": each.owner,
                "state": each.state,
                "expiresAt": each.expires_at.isoformat(),
                "expiringAt": each.expiring_at.isoformat() if each.expiring_at else None,
            }
            for each in due
        ],
    }


def _print(
    console: Console, peek: Peek, standing: TimeoutStanding, due: list[NextTimeout], is_behind: bool
) -> None:
    changed_at = standing.changed_at
    colour = "red" if is_behind else "green"
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_column(style="dim")
    facts.add_column()
    facts.add_row("behind", f"[{colour}]{peek.lag_s:.1f} s[/{colour}]")
    moved = f"{changed_at:%Y-%m-%d %H:%M:%S %Z}" if changed_at else "never"
    facts.add_row("segment", f"row {standing.value} of transaction {standing.xact}, moved {moved}")
    facts.add_row("watched", f"{standing.watched} in process, {standing.due} of them due")
    console.print(facts)
    print_list(console, _listed(due), empty="no transaction is about to expire")


def _listed(due: list[NextTimeout]) -> Table:
    rows = []
    for each in due:
        left = "rolls back" if each.expiring_at else f"{each.left_s:.0f} s"
        when = short_time(each.expires_at)
        rows.append((each.tx_id, when, left, each.state, each.pipeline, escape(each.owner)))
    columns = ("transaction", "expires", "in", "state", "pipeline", "owner")
    return list_table(columns, rows, whole=("transaction", "expires", "in"))
