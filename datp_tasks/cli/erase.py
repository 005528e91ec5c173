"""`datp erase`: take what transactions were about out of SQL, Redis and files of the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from datp_tasks.cli.command_context import connect, is_remote
from datp_tasks.cli.terminal_tables import print_json
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
    console = Console()
    chosen = None if files else Chosen(owner=owner, external_id=external_id, subject=subject)
    if is_remote():
        return _erase_over_http(
            console, chosen, reason=reason, yes=yes, dry_run=dry_run, as_json=as_json
        )
    context = connect()
    eraser = context.operator.eraser
    if chosen is None:
        return _erase_files(eraser, console)
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
    failed = [RefusedErasure(done.tx_id, done.what) for done in results if not done.ok]
    _tell(console, Told(len(results) - len(failed), len(failed), failed, also), as_json=as_json)
    return None


def _erase_over_http(
    console: Console,
    chosen: Chosen | None,
    *,
    reason: str,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from datp_tasks.cli import remote_runs

    if chosen is None:
        return remote_runs.refuse_files()
    if dry_run:
        count = remote_runs.count_over_http(chosen, as_json=as_json)
        return typer.echo(f"{count} would go") if count else None
    chosen.check_reason(reason)
    if not yes:
        count = remote_runs.count_over_http(chosen, as_json=False)
        typer.confirm(f"Erase the payloads of {count} for ever?", abort=True, err=True)
    done = remote_runs.erase_over_http(chosen, reason)
    also = {name: done[name] for name in ("batches", "keptAnswers", "dataKeys")}
    failed = [RefusedErasure(each["txId"], each["why"]) for each in done["refusals"]]
    _tell(console, Told(done["erased"], done["refused"], failed, also), as_json=as_json)
    return None


@dataclass(frozen=True, slots=True)
class RefusedErasure:
    tx_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Told:
    """What became of an erasure; over HTTP the first hundred that were refused are named."""

    erased: int
    refused: int
    named: list[RefusedErasure]
    also: dict[str, int]


def _tell(console: Console, told: Told, *, as_json: bool) -> None:
    also = told.also
    if as_json:
        refused = [{"txId": each.tx_id, "why": each.why} for each in told.named]
        print_json(console, {"erased": told.erased, **also, "refused": refused})
    else:
        for each in told.named[:SHOWN_MAX]:
            console.print(f"{each.tx_id}: {each.why}", highlight=False, soft_wrap=True)
        console.print(f"{told.erased} of {told.erased + told.refused} erased")
        if also["batches"]:
            console.print(f"{also['batches']} batches for ledgers erased")
        if also["keptAnswers"]:
            console.print(f"{also['keptAnswers']} kept answers to refused requests erased")
        if also["dataKeys"]:
            console.print(f"{also['dataKeys']} data keys of sealed payloads deleted")
    if told.refused:
        raise typer.Exit(SOME_FAILED)


def _erase_files(eraser: Eraser, console: Console) -> None:
    unreadable = eraser.erase_files()
    for name in unreadable:
        console.print(f"damaged, not erased: {name}", highlight=False, soft_wrap=True)
    if unreadable:
        raise typer.Exit(SOME_FAILED)
    console.print("what was erased is in no file of the journal here")
