"""Commands for those who run the system: why, list, alerts, and acting on many transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from datp_tasks.cli.command_context import connect
from datp_tasks.cli.terminal_tables import (
    COLOURS,
    as_mapping,
    list_table,
    print_json,
    print_list,
    short_time,
)
from datp_tasks.errors import NotGranted
from datp_tasks.model.actor import Actor
from datp_tasks.model.rights import sees_payloads
from datp_tasks.operator.action_result import ActionResult
from datp_tasks.operator.bulk import Action
from datp_tasks.operator.selection import Where
from datp_tasks.operator.why import Why
from datp_tasks.record.record_types import Summary

#: Exit codes, for scripts: alerts are open; some of many could not be done.
ALERTS_OPEN = 5
SOME_FAILED = 6

TxId = Annotated[str, typer.Argument(help="Transaction id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Filter as name=value: status, pipeline, owner, group, older-than and newer-than "
        "(time since it was accepted, as 15m); or a search attribute as attr.amount>=100.",
    ),
]
Limit = Annotated[int, typer.Option(help="At most so many.", min=1)]
Order = Annotated[
    str | None,
    typer.Option(help="Sort by a search attribute; with - before it the largest first."),
]

bulk = typer.Typer(help="Act on many transactions at once.", no_args_is_help=True)


def add_commands(app: typer.Typer) -> None:
    app.command()(why)
    app.command("list")(list_transactions)
    app.command()(alerts)
    app.command("clear-alert")(clear_alert)
    app.command()(retry)
    app.add_typer(bulk, name="bulk")


def why(tx_id: TxId, as_json: AsJson = False) -> None:
    """Tell what a transaction waits for, which node has it and when it moves."""
    context = connect()
    found = context.operator.why(tx_id, actor=context.actor)
    console = Console()
    if as_json:
        print_json(console, _why_json(found))
        return
    colour = COLOURS.get(found.status, "white")
    console.print(f"[{colour}]{found.status}[/{colour}]  {found.answer}", highlight=False)
    if found.moves_at:
        console.print(f"It moves at {found.moves_at:%Y-%m-%d %H:%M:%S %Z}.", highlight=False)
    for hint in found.hints:
        console.print(f"  → {hint}", highlight=False)


def _why_json(found: Why) -> dict[str, Any]:
    return {
        "txId": found.tx_id,
        "status": found.status,
        "cause": found.cause,
        "answer": found.answer,
        "movesAt": found.moves_at.isoformat() if found.moves_at else None,
        "hints": found.hints,
    }


def list_transactions(
    where: Filters = None, limit: Limit = 50, order: Order = None, as_json: AsJson = False
) -> None:
    """List transactions, the newest first."""
    context = connect()
    wanted = Where.from_texts(where or [])
    _check_payloads(context.actor, wanted, order)
    found = list(context.operator.choose(wanted, rows_max=limit, order=order))
    console = Console()
    if as_json:
        print_json(console, [as_mapping(each, context.actor) for each in found])
        return
    print_list(console, _table(found), empty="no transaction matches")


def _check_payloads(actor: Actor, where: Where, order: str | None = None) -> None:
    """Over HTTP the API knows the role, and refuses."""
    if (where.reads_payloads or order) and not sees_payloads(actor):
        raise NotGranted("search attributes are parts of payloads, which this role does not see")


def _table(found: list[Summary]) -> Table:
    rows = []
    for each in found:
        colour = COLOURS.get(each.status, "white")
        rows.append(
            (
                each.tx_id,
                f"[{colour}]{each.status}[/{colour}]",
                short_time(each.created_at),
                each.pipeline,
                escape(each.owner),
                escape(each.external_id or ""),
            )
        )
    columns = ("transaction", "status", "accepted", "pipeline", "owner", "external id")
    return list_table(columns, rows, whole=("transaction", "status", "accepted"))


def alerts(as_json: AsJson = False) -> None:
    """Show what needs a person. Exit code 5: there is something."""
    found = connect().alerts.open_alerts()
    console = Console()
    if as_json:
        rows = [
            {
                "kind": each.kind,
                "subject": each.subject,
                "summary": each.summary,
                "since": each.created_at.isoformat(),
            }
            for each in found
        ]
        print_json(console, rows)
    else:
        rows_shown = [
            (short_time(each.created_at), each.kind, escape(each.subject), escape(each.summary))
            for each in found
        ]
        columns, whole = ("since", "kind", "subject", "what"), ("since", "kind", "subject")
        table = list_table(columns, rows_shown, whole=whole)
        print_list(console, table, empty="no alert is open")
    if found:
        raise typer.Exit(ALERTS_OPEN)


Reason = Annotated[str, typer.Option(help="Why; it is kept in the audit table.")]


def clear_alert(
    kind: Annotated[str, typer.Argument(help="As `datp alerts` shows it.")],
    subject: Annotated[str, typer.Argument(help="As `datp alerts` shows it.")],
    reason: Reason,
    as_json: AsJson = False,
) -> None:
    """Close an alert that was dealt with. Exit code 1: there is no such alert."""
    context = connect()
    cleared = context.operator.approvals.clear_alert(context.actor, kind, subject, reason=reason)
    if as_json:
        print_json(Console(), {"kind": kind, "subject": subject, "cleared": cleared})
    else:
        Console().print("cleared" if cleared else "no such alert is open")
    if not cleared:
        raise typer.Exit(1)


DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be chosen.")]
BreakGlass = Annotated[
    bool, typer.Option("--break-glass", help="Act alone; an alert stays for another person.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """Options that all bulk actions have."""

    dry_run: bool
    break_glass: bool
    as_json: bool


def retry(tx_id: TxId, reason: Reason = "retried by hand", as_json: AsJson = False) -> None:
    """Make a transaction go on now.

    One that sleeps is woken, one in doubt runs its step again, for others a bell is rung again.
    """
    context = connect()
    done = context.operator.retry(tx_id, reason=reason, actor=context.actor)
    if as_json:
        print_json(Console(), _done_json(done))
    else:
        Console().print(done.what)
    if not done.ok:
        raise typer.Exit(1)


def _add_bulk_action(action: Action, what: str) -> None:
    @bulk.command(action, help=what)
    def act(
        reason: Reason,
        where: Filters = None,
        limit: Limit = 100_000,
        dry_run: DryRun = False,
        break_glass: BreakGlass = False,
        as_json: AsJson = False,
    ) -> None:
        how = How(dry_run=dry_run, break_glass=break_glass, as_json=as_json)
        _act(action, where, limit, reason, how)


_add_bulk_action("cancel", "Cancel every transaction that matches.")
_add_bulk_action("wake", "End the sleep of every transaction that matches.")
_add_bulk_action("retry", "Make every transaction that matches go on now.")


def _done_json(done: ActionResult) -> dict[str, Any]:
    return {"txId": done.tx_id, "what": done.what, "ok": done.ok}


def _act(
    action: Action,
    texts: list[str] | None,
    limit: int,
    reason: str,
    how: How,
) -> None:
    if not texts:
        raise typer.BadParameter("name at least one filter: all transactions are never meant")
    context = connect()
    operator = context.operator
    where = Where.from_texts(texts)
    _check_payloads(context.actor, where)
    chosen = list(operator.choose(where, rows_max=limit, open_only=True))
    console = Console()
    if how.dry_run:
        if how.as_json:
            return print_json(console, [as_mapping(each) for each in chosen])
        print_list(console, _table(chosen[:50]), empty="no open transaction matches")
        console.print(f"{len(chosen)} would be changed ({action}); nothing was done")
        return None
    actor = context.actor
    done_one_by_one = operator.act_on_many(
        action,
        where,
        [each.tx_id for each in chosen],
        reason=reason,
        actor=actor,
        break_glass=how.break_glass,
    )
    shown = track(
        done_one_by_one, description=action, total=len(chosen), console=console, disable=how.as_json
    )
    results = list(shown)
    failed = [done for done in results if not done.ok]
    if how.as_json:
        print_json(console, [_done_json(done) for done in results])
    else:
        for done in failed[:20]:
            console.print(f"{done.tx_id}: {done.what}", highlight=False)
        console.print(f"{len(results) - len(failed)} of {len(results)} done")
    if failed:
        raise typer.Exit(SOME_FAILED)
    return None
