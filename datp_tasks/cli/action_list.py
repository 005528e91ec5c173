"""`datp audit actions`: who did what, and whether the chain over it is whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.cli.command_context import connect, is_remote
from datp_tasks.cli.remote_calls import refuse_over_http
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list, short_time
from datp_tasks.errors import DecisionInvalid
from datp_tasks.record.audit_chain import ChainHead, Noted

#: Exit code when the chain is not whole, as that of `doctor` and `audit`.
SOMETHING_WRONG = 5


COLUMNS = ("at", "id", "actor", "action", "subject", "reason", "request", "address")


def actions(
    subject: Annotated[
        str | None, typer.Option(help="Only about this, as a transaction id.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only by the key with this id.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this, as `resolve`.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 50,
    head: Annotated[
        str | None, typer.Option(help="A head that was printed before: it must still be there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List who did what, the newest first, and verify the chain. Exit code 5: it is not whole."""
    from datp_tasks.api.audit_actions import noted_json

    chain = connect().audit_chain
    found = chain.actions(subject=subject, key_id=key, action=action, rows_max=limit)
    console = Console()
    if is_remote():
        # The whole chain is read for it, which the API does not do.
        if head is not None:
            refuse_over_http("the whole chain of the audit")
        if as_json:
            print_json(console, {"actions": [noted_json(each) for each in found]})
        else:
            _print(console, found)
            console.print("the chain is verified where the command runs without --url")
        return
    report = chain.verify(_parsed(head))
    if as_json:
        verdict = {"sealed": report.sealed, "head": str(report.head), "faults": report.faults}
        print_json(console, {**verdict, "actions": [noted_json(each) for each in found]})
    else:
        _print(console, found)
        for fault in report.faults:
            console.print(f"[bold red]{escape(fault)}[/bold red]")
        colour = "bold red" if report.faults else "green"
        verdict_text = "is not whole" if report.faults else "is whole"
        console.print(f"[{colour}]the chain of {report.sealed} {verdict_text}[/{colour}]")
        console.print(f"head {report.head}", soft_wrap=True, highlight=False)
    if report.faults:
        raise typer.Exit(SOMETHING_WRONG)


def _print(console: Console, found: Sequence[Noted]) -> None:
    columns, rows = _filled([_row(each) for each in found])
    table = list_table(columns, rows, whole=("at", "id", "action"))
    print_list(console, table, empty="no action matches")


def _row(each: Noted) -> tuple[str, ...]:
    return (
        short_time(each.created_at),
        str(each.id),
        escape(each.actor),
        escape(each.action),
        escape(each.subject),
        escape(each.reason or ""),
        escape(each.request_id or ""),
        escape(each.address or ""),
    )


def _filled(rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Without the columns that no row fills: what is done on the command line has no address."""
    filled = [n for n in range(len(COLUMNS)) if not rows or any(row[n] for row in rows)]
    return [COLUMNS[n] for n in filled], [[row[n] for n in filled] for row in rows]


def _parsed(head: str | None) -> ChainHead | None:
    if head is None:
        return None
    position, colon, text = head.partition(":")
    if not colon or not position.isdecimal():
        raise DecisionInvalid("a head is `<position>:<hash>`, as this command prints it")
    return ChainHead(int(position), text)
