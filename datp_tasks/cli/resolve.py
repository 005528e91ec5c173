"""Commands for what is in doubt: doctor, resolve, replay, audit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from datp_tasks.cli.action_list import actions
from datp_tasks.cli.command_context import connect, is_remote
from datp_tasks.cli.terminal_tables import (
    COLOURS,
    as_mapping,
    list_table,
    print_json,
    print_list,
    short_time,
)
from datp_tasks.errors import DecisionInvalid
from datp_tasks.model.journal import Entry
from datp_tasks.model.payload import NotJson, parse
from datp_tasks.model.plan import place_words
from datp_tasks.operator.doctor import Diagnosis
from datp_tasks.operator.doubt_decisions import Decision
from datp_tasks.operator.replay import Replay

#: Exit code of `doctor` and `audit` when something is wrong.
SOMETHING_WRONG = 5
OUTPUT_BYTES_MAX = 64 * 1024 * 1024
DELTA_CHARS_MAX = 100
#: So many of a kind are shown to people; programs get all.
SHOWN_MAX = 50

TxId = Annotated[str, typer.Argument(help="Transaction id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    for command in (doctor, resolve, replay):
        app.command()(command)
    group = typer.Typer()
    group.callback(invoke_without_command=True)(audit)
    group.command()(actions)
    app.add_typer(group, name="audit")


# What is in flight, in doubt, or wrong.


def doctor(as_json: AsJson = False) -> None:
    """Show what is in flight and in doubt, and check all. Exit code 5: something is wrong."""
    found = connect().operator.doctor()
    console = Console()
    if as_json:
        print_json(console, _diagnosis(found))
    else:
        _show_diagnosis(console, found)
    if not found.is_healthy:
        raise typer.Exit(SOMETHING_WRONG)


def _diagnosis(found: Diagnosis) -> dict[str, Any]:
    in_flight = [_renamed(asdict(each)) for each in found.in_flight]
    return {
        "healthy": found.is_healthy,
        "inFlight": in_flight,
        "inDoubt": [_renamed(asdict(each)) for each in found.in_doubt],
        "violations": [_renamed(asdict(each)) for each in found.violations],
        "sizes": found.sizes,
        "journalBacklog": found.journal_backlog,
        "lostShards": found.lost_shards,
        "openAlerts": found.open_alerts,
    }


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    """As everywhere else in JSON: txId instead of tx_id."""
    return {_camel(name): value for name, value in values.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _show_diagnosis(console: Console, found: Diagnosis) -> None:
    _section(
        console,
        "In flight",
        ("transaction", "since", "place", "step", "node", "stands"),
        [
            (
                each.tx_id,
                _time(each.since_ms),
                escape(place_words(each.place)),
                each.step_type,
                f"[red]{escape(each.node)} (gone)[/red]" if each.orphaned else escape(each.node),
                "in the middle of its step" if each.mid_step else "between two steps",
            )
            for each in found.in_flight
        ],
    )
    _section(
        console,
        "In doubt: decide each with `datp resolve`",
        ("transaction", "since", "place", "step", "why"),
        [
            (
                each.tx_id,
                _time(each.since_ms),
                escape(place_words(each.place)),
                each.step_type,
                escape(each.why),
            )
            for each in found.in_doubt
        ],
    )
    _section(
        console,
        "Not as it should be",
        ("transaction", "what"),
        [(escape(each.tx_id), escape(each.what)) for each in found.violations],
    )
    lists = ", ".join(f"{size} in {name}" for name, size in found.sizes.items())
    console.print(f"[dim]lists[/dim]    {lists}")
    console.print(f"[dim]journal[/dim]  {found.journal_backlog} entries on their way to SQL")
    if found.lost_shards:
        shards = ", ".join(found.lost_shards)
        console.print(f"[red]Redis has lost writes in shards {shards}; not repaired yet[/red]")
    if found.open_alerts:
        console.print(f"[red]{found.open_alerts} alerts are open[/red]")
    if found.is_healthy:
        console.print("[green]healthy[/green]")
    else:
        console.print("[bold red]something is wrong[/bold red]")


def _section(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    if not rows:
        return
    whole = ("transaction", "since")
    table = list_table(columns, rows[:SHOWN_MAX], whole=whole, title=title)
    print_list(console, table, empty="")
    if len(rows) > SHOWN_MAX:
        console.print(f"[dim]… and {len(rows) - SHOWN_MAX} more; --json shows all[/dim]")


def _time(at_ms: float) -> str:
    return short_time(datetime.fromtimestamp(at_ms / 1_000, UTC))


# Deciding.


def resolve(
    tx_id: TxId,
    *,
    done: Annotated[bool, typer.Option("--done", help="The step took effect.")] = False,
    redo: Annotated[bool, typer.Option("--redo", help="It had no effect: run it again.")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="It failed: roll back.")] = False,
    reason: Annotated[str, typer.Option(help="Why; kept in the audit table.")] = "",
    output: Annotated[
        str | None, typer.Option(help="JSON object: what the step returned (with --done).")
    ] = None,
    break_glass: Annotated[
        bool, typer.Option("--break-glass", help="Act alone; an alert stays for another person.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Decide what became of the step of a transaction that is in doubt. It goes on from there."""
    decision = _decision(done=done, redo=redo, fail=fail)
    context = connect()
    context.operator.resolve(
        tx_id,
        decision,
        reason=reason,
        output=None if output is None else _parsed(output),
        actor=context.actor,
        break_glass=break_glass,
    )
    summary = context.client.status(tx_id)
    if as_json:
        print_json(Console(), as_mapping(summary))
    else:
        typer.echo(f"decided; the transaction is {summary.status}")


def _decision(**given: bool) -> Decision:
    chosen = [name for name, is_chosen in given.items() if is_chosen]
    if len(chosen) != 1:
        raise typer.BadParameter("give exactly one of --done, --redo and --fail")
    decision: Decision = chosen[0]  # type: ignore[assignment]
    return decision


def _parsed(text: str) -> Any:
    try:
        return parse(text, what="--output", bytes_max=OUTPUT_BYTES_MAX)
    except NotJson as error:
        raise DecisionInvalid(str(error)) from None


# Replaying.


def replay(tx_id: TxId, as_json: AsJson = False) -> None:
    """Rebuild a transaction from its journal. Exit code 5: it does not lead to what we have."""
    found = connect().operator.replay(tx_id)
    console = Console()
    if as_json:
        print_json(console, _replay(found))
    else:
        _show_replay(console, found)
    if found.faults:
        raise typer.Exit(SOMETHING_WRONG)


def _replay(found: Replay) -> dict[str, Any]:
    view = found.view
    return {
        "txId": found.tx_id,
        "entries": [_entry(each) for each in found.entries],
        "status": view.status if view else None,
        "version": view.version if view else None,
        "state": json.loads(view.state.to_json()) if view else None,
        "dropped": found.dropped,
        "erased": found.erased,
        "faults": found.faults,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "before": entry.before,
        "fence": entry.fence,
        "kind": entry.kind,
        "extra": entry.extra,
        "deltas": [json.loads(line) for line in entry.deltas],
    }


def _show_replay(console: Console, found: Replay) -> None:
    if found.dropped:
        console.print("its journal was dropped: it ended longer ago than DATP_KEEP__JOURNAL_DAYS")
        return
    if found.erased:
        console.print("its payloads were erased; what is left of its journal:")
    table = Table("version", "fence", "what", "with", "deltas", box=None)
    for entry in found.entries:
        deltas = "\n".join(escape(_shortened(line)) for line in entry.deltas)
        extra = escape(_shortened(entry.extra))
        table.add_row(str(entry.version), str(entry.fence), entry.kind, extra, deltas)
    console.print(table)
    if found.view:
        colour = COLOURS.get(found.view.status, "white")
        console.print(f"leads to: [{colour}]{found.view.status}[/{colour}]")
        console.print(found.view.state.to_json(), markup=False, highlight=False)
    for fault in found.faults:
        console.print(f"[bold red]{escape(fault)}[/bold red]")
    if not found.faults:
        leads = (
            "its chain is whole"
            if found.erased
            else "it leads to what we have, and its chain is whole"
        )
        console.print(f"[green]{leads}[/green]")


def _shortened(text: str) -> str:
    return text if len(text) <= DELTA_CHARS_MAX else f"{text[:DELTA_CHARS_MAX]}…"


def audit(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="All transactions.")] = False,
    sample: Annotated[
        int | None, typer.Option(min=1, help="So many, chosen at random; 1,000 by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed takes the same sample.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Replay many transactions and report what does not fit. Exit code 5: there is something."""
    if context.invoked_subcommand:
        return
    if everything and sample is not None:
        raise typer.BadParameter("give --all or --sample, not both")
    console = Console()
    if is_remote():
        from datp_tasks.cli.remote_runs import audit_over_http

        found = audit_over_http(sample=sample, everything=everything, seed=seed)
    else:
        found = _audited(console, None if everything else sample or 1_000, seed, as_json=as_json)
    wrong_count = found["wrongCount"]
    if as_json:
        print_json(console, found)
    else:
        rows = [(each["txId"], escape("; ".join(each["faults"]))) for each in found["wrong"]]
        _section(console, "What does not fit", ("transaction", "what"), rows)
        dropped = found["dropped"]
        gone = f", {dropped} without a journal any more" if dropped else ""
        colour = "bold red" if wrong_count else "green"
        console.print(f"{found['audited']} of {found['total']} audited{gone}")
        console.print(f"[{colour}]{wrong_count} do not fit[/{colour}]")
    if wrong_count:
        raise typer.Exit(SOMETHING_WRONG)


def _audited(console: Console, sample: int | None, seed: int, *, as_json: bool) -> dict[str, Any]:
    operator = connect().operator
    total = operator.audit_size()
    size = None if sample is None else min(sample, total)
    wrong: list[dict[str, Any]] = []
    looked_at = dropped = 0
    columns = (TextColumn("audit"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = console.is_terminal and not as_json
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("audit", total=total if size is None else size)
        for found in operator.audit(sample=size, seed=seed):
            looked_at += 1
            dropped += found.dropped
            if found.faults:
                wrong.append({"txId": found.tx_id, "faults": found.faults})
            progress.advance(task)
    counts = {"total": total, "audited": looked_at, "dropped": dropped}
    return {**counts, "wrong": wrong, "wrongCount": len(wrong)}
