"""Commands on transactions: submit, status, watch, switch, cancel, wake."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from datp_tasks.cli.command_context import connect, is_remote
from datp_tasks.cli.remote_calls import refuse_owner_over_http
from datp_tasks.cli.terminal_tables import as_mapping, print_json, print_summary
from datp_tasks.errors import DatpError, InputInvalid, WaitTimeout
from datp_tasks.model.payload import NotJson, parse
from datp_tasks.model.status import Status
from datp_tasks.model.switch import typed_value
from datp_tasks.record.record_types import Summary

if TYPE_CHECKING:
    from datp_tasks.cli.command_context import Context

#: Exit codes, for scripts: 0 fine, 1 an error, 2 wrong usage, and these.
NOT_SUCCESSFUL = 3
NOT_ENDED = 4

WATCH_EVERY_S = 0.25
#: How long `submit --wait` is silent, and how often it looks whether the reason has changed.
EXPLAIN_EVERY_S = 2.0
OLD_DATA = "--data is now --input; this release still reads --data, the next one does not"
NUMBERS = re.compile(r"[\d.]+")
FILE_BYTES_MAX = 64 * 1024 * 1024

TxId = Annotated[str, typer.Argument(help="Transaction id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    for command in (submit, status, watch, switch, cancel, wake):
        app.command()(command)


def submit(
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")],
    *,
    input_: Annotated[
        str, typer.Option("--input", "-i", help="JSON object, @file, or - for standard input.")
    ] = "{}",
    data: Annotated[str | None, typer.Option("--data", "-d", hidden=True)] = None,
    owner: Annotated[
        str | None, typer.Option(help="Whose transaction it is; else the key's owner, or local.")
    ] = None,
    external_id: Annotated[str | None, typer.Option(help="Your own name for it.")] = None,
    metadata: Annotated[str | None, typer.Option(help="JSON object.")] = None,
    expires_in: Annotated[
        float | None, typer.Option(help="Seconds until it must be over; else it is rolled back.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until it has ended.")] = False,
    timeout_s: Annotated[float, typer.Option(help="How long to wait, in seconds.")] = 60.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only its id.")] = False,
    as_json: AsJson = False,
) -> None:
    """Hand in a transaction. Exit code 3: it ended otherwise than successfully; 4: not yet."""
    if data is not None:
        typer.echo(OLD_DATA, err=True)
    context = connect()
    if is_remote():
        refuse_owner_over_http(owner)
    client = context.client
    submitted = client.submit(
        pipeline,
        _parsed("--input", input_) if data is None else _parsed("--data", data),
        owner=owner or context.actor.owner or "local",
        external_id=external_id,
        metadata=_parsed("--metadata", metadata) if metadata else None,
        expires_in_s=expires_in,
        by=context.actor,
    )
    if quiet:
        typer.echo(submitted.tx_id)
    if not wait:
        if not quiet:
            _show(client.status(submitted.tx_id), as_json)
        return
    summary = _waited(context, submitted.tx_id, timeout_s, explain=not quiet)
    if not quiet:
        _show(summary, as_json)
    _exit_by(summary)


def _waited(context: Context, tx_id: str, timeout_s: float, *, explain: bool) -> Summary:
    """Wait for the end. Meanwhile say what it waits for, and again when that changes."""
    give_up_s = time.monotonic() + timeout_s
    said = ""
    while (left_s := give_up_s - time.monotonic()) > 0:
        try:
            return context.client.wait(tx_id, min(left_s, EXPLAIN_EVERY_S))
        except WaitTimeout:
            said = _explain(context, tx_id, said) if explain else ""
    typer.echo(
        f"{tx_id} is still {context.client.status(tx_id).status} after {timeout_s:g} s; "
        f"`datp watch {tx_id}` shows how it goes on",
        err=True,
    )
    raise typer.Exit(NOT_ENDED)


def _explain(context: Context, tx_id: str, said: str) -> str:
    """One line to standard error, unless only the seconds in it have changed."""
    from datp_tasks.live.redis_errors import RedisError

    try:
        found = context.operator.why(tx_id, actor=context.actor)
    except (DatpError, RedisError, OSError):
        # An answer is only a service here; the wait itself knows what to do about an outage.
        return said
    answer = NUMBERS.sub("", found.answer)
    if answer != said:
        typer.echo(f"waiting: {found.answer}", err=True)
        for hint in found.hints[:1]:
            typer.echo(f"  → {hint}", err=True)
    return answer


def status(tx_id: TxId, as_json: AsJson = False) -> None:
    """Show a transaction as its client sees it."""
    _show(connect().reader.status(tx_id), as_json)


def watch(
    tx_id: TxId,
    timeout_s: Annotated[float, typer.Option(help="Give up after so many seconds.")] = 3600.0,
) -> None:
    """Follow a transaction until it has ended, a line for each change."""
    client = connect().reader
    console = Console()
    give_up_s = time.monotonic() + timeout_s
    seen: tuple[Any, ...] = ()
    while True:
        summary = client.status(tx_id).masked()
        news = (summary.status, summary.progress, summary.note)
        if news != seen:
            seen = news
            progress = json.dumps(summary.progress, ensure_ascii=False) if summary.progress else ""
            console.print(
                f"{time.strftime('%H:%M:%S')}  {summary.status!s:<14} {progress} "
                f"{summary.note or ''}",
                markup=False,
            )
        if summary.is_final:
            _show(summary, as_json=False)
            _exit_by(summary)
            return
        if time.monotonic() > give_up_s:
            raise typer.Exit(NOT_ENDED)
        time.sleep(WATCH_EVERY_S)


def switch(
    tx_id: TxId,
    name: Annotated[str, typer.Argument(help="Name of the switch.")],
    value: Annotated[str, typer.Argument(help="true, false, a number or a text of 32 characters.")],
) -> None:
    """Set a switch; a transaction that waits for it wakes up."""
    context = connect()
    woken = context.client.set_switch(tx_id, name, typed_value(value), by=context.actor)
    typer.echo("set; the transaction woke up" if woken else "set")


def cancel(
    tx_id: TxId,
    reason: Annotated[str, typer.Option(help="Why.")] = "cancelled from the command line",
) -> None:
    """Take a transaction back; what was done is rolled back."""
    context = connect()
    summary = context.client.cancel(tx_id, reason, by=context.actor)
    if summary.status is Status.CANCELLED:
        typer.echo("cancelled; nothing had begun")
    else:
        typer.echo(f"asked for; it is {summary.status} and will be rolled back")


def wake(tx_id: TxId) -> None:
    """End a sleep early."""
    context = connect()
    woken = context.client.wake(tx_id, by=context.actor)
    typer.echo("woken up" if woken else "it does not sleep")


def _show(summary: Summary, as_json: bool) -> None:
    console = Console()
    if as_json:
        print_json(console, as_mapping(summary))
    else:
        print_summary(console, summary)


def _exit_by(summary: Summary) -> None:
    if summary.status is not Status.SUCCESS:
        raise typer.Exit(NOT_SUCCESSFUL)


def _parsed(option: str, text: str) -> Any:
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        path = Path(text[1:])
        try:
            text = path.read_text()
        except OSError as error:
            raise InputInvalid(f"{option}: {path} cannot be read: {error.strerror}") from None
    try:
        return parse(text, what=option, bytes_max=FILE_BYTES_MAX)
    except NotJson as error:
        raise InputInvalid(str(error)) from None
