"""`datp erase`: take what transactions were about out of SQL, Redis and files of the journal."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from datp_tasks.cli.command_context import connect
from datp_tasks.cli.terminal_tables import print_json
from datp_tasks.operator.action_result import ActionResult
from datp_tasks.operator.erase import Chosen, Eraser

#: Exit codes, for scripts: some could not be erased; files could not be read.
SOME_FAILED = 6
SHOWN_MAX = 20


def add_commands(app: typer.Typer) -> None:
    app.command()(erase)


def erase(
    *,
    reason: Annotated[str, typer.Option(help="Why, such as the number of the request.")] = "",
    owner: Annotated[str | None, typer.Option(help="Alone: all of this owner.")] = None,
    external_id: Annotated[str | None, typer.Option(help="One transaction of the owner.")] = None,
    subject: Annotated[
        str | None, typer.Option(help="JSON pointer and value: /customer=ann, of any pipeline.")
    ] = None,
    files: Annotated[
        bool, typer.Option("--files", help="Only the journal files here, of all that was erased.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Erase what transactions were about; ids, status, times and hashes stay. Only what has ended.

    It can be repeated: a run that was cut off is finished by the same command.
    """
    context = connect()
    eraser = context.operator.eraser
    console = Console()
    if files:
        return _erase_files(eraser, console)
    chosen = Chosen(owner=owner, external_id=external_id, subject=subject)
    tx_ids = [tx for page in eraser.search.choose(chosen) for tx in page]
    if dry_run:
        return print_json(console, tx_ids) if as_json else typer.echo(f"{len(tx_ids)} would go")
    chosen.check_reason(reason)
    if not yes:
        typer.confirm(f"Erase the payloads of {len(tx_ids)} for ever?", abort=True, err=True)
    permit = eraser.permit(chosen, reason=reason, actor=context.actor)
    results = []
    shown = console.is_terminal and not as_json
    columns = (TextColumn("erase"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("erase", total=len(tx_ids))
        for done in eraser.erase(tx_ids, permit):
            results.append(done)
            progress.advance(task)
    also = {
        "batches": eraser.erase_batches(permit),
        "keptAnswers": eraser.erase_answers(permit),
        "dataKeys": eraser.erase_keys(permit),
    }
    _tell(console, results, also, as_json=as_json)
    return None


def _tell(
    console: Console, results: list[ActionResult], also: dict[str, int], *, as_json: bool
) -> None:
    failed = [done for done in results if not done.ok]
    if as_json:
        refused = [{"txId": done.tx_id, "why": done.what} for done in failed]
        erased = len(results) - len(failed)
        print_json(console, {"erased": erased, **also, "refused": refused})
    else:
        for done in failed[:SHOWN_MAX]:
            console.print(f"{done.tx_id}: {done.what}", highlight=False, soft_wrap=True)
        console.print(f"{len(results) - len(failed)} of {len(results)} erased")
        if also["batches"]:
            console.print(f"{also['batches']} batches for ledgers erased")
        if also["keptAnswers"]:
            console.print(f"{also['keptAnswers']} kept answers to refused requests erased")
        if also["dataKeys"]:
            console.print(f"{also['dataKeys']} data keys of sealed payloads deleted")
    if failed:
        raise typer.Exit(SOME_FAILED)


def _erase_files(eraser: Eraser, console: Console) -> None:
    unreadable = eraser.erase_files()
    for name in unreadable:
        console.print(f"damaged, not erased: {name}", highlight=False, soft_wrap=True)
    if unreadable:
        raise typer.Exit(SOME_FAILED)
    console.print("what was erased is in no file of the journal here")
