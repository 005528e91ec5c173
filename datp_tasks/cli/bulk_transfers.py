"""`datp bulk-transfers …`: many transactions with one deadline and one report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.cli.command_context import connect, is_remote
from datp_tasks.cli.remote_calls import refuse_owner_over_http
from datp_tasks.cli.terminal_tables import list_table, print_list
from datp_tasks.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datp_tasks.client.requests import Request
    from datp_tasks.record.record_types import Summary

app = typer.Typer(
    help="Bulk transfers: one deadline, and one report of many.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
BreakGlass = Annotated[
    bool, typer.Option("--break-glass", help="Act alone; an alert stays for another person.")
]
#: What a cancel may come to, if it did something; else the exit code, for scripts.
TAKEN_BACK = frozenset({"cancelled", "stopping"})
NONE_CANCELLED = 1
#: Keys of a transaction in a file, as the API has them → options of a request.
OPTIONS = {
    "externalId": "external_id",
    "metadata": "metadata",
    "expiresAt": "expires_at",
    "expiresInSeconds": "expires_in_s",
    "webhook": "webhook",
    "progressReports": "progress_reports",
    "cancelWebhookOnPoll": "cancel_webhook_on_poll",
}


def add_commands(root: typer.Typer) -> None:
    root.add_typer(app, name="bulk-transfers")


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="YAML or JSON, as POST /v1/bulk-transfers has it.")],
    owner: Annotated[
        str | None, typer.Option(help="Whose transfers they are; else the key's owner, or local.")
    ] = None,
) -> None:
    """Hand in a bulk; it and its transfers are accepted by one commit."""
    context = connect()
    if is_remote():
        refuse_owner_over_http(owner)
    document = _document(file)
    given = document.pop("transfers", None)
    if not isinstance(given, list):
        raise RequestError(f"{file}: transfers must be a list")
    whose = owner or context.actor.owner or "local"
    bulk = _request(document, f"{file}", whose, input={})
    transfers = [_request(each, f"{file}: transfers[{n}]", whose) for n, each in enumerate(given)]
    done = context.client.bulk_transfers.submit(
        replace(bulk, by=context.actor), [replace(each, by=context.actor) for each in transfers]
    )
    typer.echo(f"{done.tx_id}: {'accepted before' if done.duplicate else 'accepted'}")


@app.command()
def show(
    bulk_id: Annotated[str, typer.Argument(help="Id of the bulk.")], as_json: AsJson = False
) -> None:
    """Show the state of a bulk, and what became of each transfer."""
    _print(connect().client.bulk_transfers.document(bulk_id), as_json)


@app.command()
def cancel(
    bulk_id: Annotated[str, typer.Argument(help="Id of the bulk.")],
    reason: Annotated[str, typer.Option(help="Why; it is kept in the audit table.")],
    break_glass: BreakGlass = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take back each transfer of a bulk that still can be, and tell what became of each. Exit code
    1: none was cancelled or asked to stop."""
    context = connect()
    if not reason.strip():
        raise RequestError("--reason must say why")
    if not yes:
        typer.confirm(f"Cancel what can be taken back of {bulk_id}?", abort=True, err=True)
    if is_remote():
        remote: Any = context.client.bulk_transfers
        found = remote.cancel(bulk_id, reason, break_glass=break_glass)
    else:

        def stop(transfers: Sequence[Summary]) -> dict[str, str]:
            from datp_tasks.operator.selection import TransfersOfBulk

            done = context.operator.act_on_many(
                "cancel",
                TransfersOfBulk(bulk_id),
                [each.tx_id for each in transfers],
                reason=reason,
                actor=context.actor,
                break_glass=break_glass,
            )
            return {each.tx_id: each.what for each in done if not each.ok}

        found = context.client.bulk_cancel.cancel(bulk_id, reason, stop=stop).to_json()
    _print(found, as_json)
    if not TAKEN_BACK & found["cancelCounts"].keys():
        raise typer.Exit(NONE_CANCELLED)


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    counts = ", ".join(f"{count} {status}" for status, count in found["counts"].items())
    typer.echo(f"{found['bulkId']}  {found['state']}  expires {found['expiresAt']}\n{counts}")
    rows = [
        (
            str(each["index"]),
            each.get("txId") or each.get("duplicateOf") or "-",
            each["status"] + (f" ({each['cancel']})" if "cancel" in each else ""),
            escape(each.get("externalId") or ""),
            escape(each.get("cancelNote") or each.get("problem") or each.get("note") or ""),
        )
        for each in found["transfers"]
    ]
    columns = ("#", "Transaction", "Status", "External id", "Note")
    print_list(Console(), list_table(columns, rows, whole=columns[:3]), empty="no transfers")


def _document(file: Path) -> dict[str, Any]:
    from datp_tasks.pipelines.yaml_text import YamlTextError, load_documents

    try:
        documents = load_documents(file.read_text())
    except (OSError, UnicodeDecodeError, YamlTextError) as error:
        raise RequestError(f"{file}: {error}") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise RequestError(f"{file}: must be one object with the key transfers")
    return dict(documents[0])


def _request(given: Any, where: str, owner: str, **otherwise: Any) -> Request:
    from datp_tasks.client.requests import Request

    if not isinstance(given, dict):
        raise RequestError(f"{where}: must be an object with pipeline and input")
    found = otherwise | given
    unknown = sorted(found.keys() - OPTIONS.keys() - {"pipeline", "input"})
    missing = sorted({"pipeline", "input"} - found.keys())
    if unknown or missing:
        what = f"{unknown[0]} is not a known key" if unknown else f"{missing[0]} is missing"
        raise RequestError(f"{where}: {what}; known are pipeline, input, {', '.join(OPTIONS)}")
    options = {name: found[key] for key, name in OPTIONS.items() if key in found}
    return Request(pipeline=found["pipeline"], input=found["input"], owner=owner, **options)
