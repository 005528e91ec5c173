"""`datp claims`, `datp batches …`, `datp services …` and `datp ledger-sim`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.cli.command_context import connect, is_remote
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list, short_time
from datp_tasks.errors import BatchInvalid, LedgerError, LocalStackError
from datp_tasks.ledger.batch_types import Claim, LedgerBatch
from datp_tasks.ledger.ledger_service import Ledger
from datp_tasks.ledger.sim.sim_server import LedgerSim, serve
from datp_tasks.model.ledger_batch import BatchState

ROWS_MAX = 100_000
ID_CHARS = 16
COLOURS = {
    BatchState.COMMITTED: "green",
    BatchState.INVALID: "red",
    BatchState.REFUSED: "red",
    BatchState.PARKED: "bold yellow",
    BatchState.UNKNOWN: "yellow",
    BatchState.DELAYED: "yellow",
    BatchState.SUBMITTING: "blue",
    BatchState.PENDING: "cyan",
    BatchState.VALID: "cyan",
}

batches_app = typer.Typer(help="Batches for ledgers: look at them, decide.", no_args_is_help=True)
services_app = typer.Typer(help="Ledger services: where batches go.", no_args_is_help=True)

Service = Annotated[str, typer.Argument(help="Name of the ledger service.")]
BatchId = Annotated[str, typer.Argument(help="Batch id, or the start of it.")]
Reason = Annotated[str, typer.Option(help="Why. It goes into the audit.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
Limit = Annotated[int, typer.Option(min=1, max=ROWS_MAX, help="How many at most.")]
BreakGlass = Annotated[
    bool, typer.Option("--break-glass", help="Act alone; an alert stays for another person.")
]


def add_commands(app: typer.Typer) -> None:
    app.command()(claims)
    app.command("ledger-sim")(ledger_sim)
    app.add_typer(batches_app, name="batches")
    app.add_typer(services_app, name="services")


def claims(
    service: Annotated[str | None, typer.Option(help="This service only.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show which instance has claimed which ledger service, and until when."""
    found = _ledger().claims.claims(rows_max=limit, service_id=service)
    if as_json:
        print_json(Console(), [_claim_json(each) for each in found])
        return
    rows = [
        (
            each.service_id,
            each.claimant or "-",
            str(each.epoch),
            _until(each),
            str(each.waiting),
            f"{each.head[:ID_CHARS]} {_state(each.head_state)}" if each.head else "-",
        )
        for each in found
    ]
    columns = ("Service", "Claimant", "Epoch", "Until", "Waiting", "First in line")
    table = list_table(columns, rows, whole=("Claimant", "Until"))
    none = "no ledger services; `datp services add` names one"
    print_list(Console(), table, empty=none if service is None else f"no service {service}")


@batches_app.command("list")
def list_batches(
    service: Annotated[str | None, typer.Option(help="Of this service only.")] = None,
    state: Annotated[str | None, typer.Option(help="In this state only.")] = None,
    with_final: Annotated[bool, typer.Option("--all", help="Also those that are final.")] = False,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show batches, by service and in their order."""
    found = _ledger().batches.list_batches(
        service_id=service,
        state=None if state is None else _parsed_state(state),
        with_final=with_final,
        rows_max=limit,
    )
    if as_json:
        print_json(Console(), [_batch_json(each) for each in found])
        return
    # The start of an id is enough for the other commands, so it stands without an ellipsis.
    rows = [
        (
            each.service_id,
            str(each.seq or "–"),
            each.batch_id[:ID_CHARS],
            _state(each.state),
            str(each.attempts),
            short_time(each.created_at),
            escape(each.note or ""),
        )
        for each in found
    ]
    columns = ("Service", "No.", "Batch", "State", "Tries", "Since", "Note")
    table = list_table(columns, rows, whole=("Batch", "State", "Since"))
    none = "no batch matches" if with_final else "no batch is open; --all shows final ones, too"
    print_list(Console(), table, empty=none)


@batches_app.command()
def show(service: Service, batch: BatchId, as_json: AsJson = False) -> None:
    """Show one batch with every submission and every state in which it was seen."""
    ledger = _ledger()
    found = _find(ledger, service, batch)
    if is_remote():
        _show_alone(found, as_json)
        return
    attempts = ledger.batches.attempts(service, found.batch_id)
    sightings = ledger.batches.sightings(service, found.batch_id)
    if as_json:
        value = _batch_json(found)
        value["attempts"] = [
            {
                "attempt": each.attempt,
                "epoch": each.epoch,
                "sender": each.sender,
                "begunAt": each.begun_at.isoformat(),
                "endedAt": each.ended_at.isoformat() if each.ended_at else None,
                "verdict": each.verdict,
                "httpStatus": each.http_status,
                "note": each.note,
            }
            for each in attempts
        ]
        value["seen"] = [
            {
                "state": each.state,
                "source": each.source,
                "note": each.note,
                "at": each.seen_at.isoformat(),
            }
            for each in sightings
        ]
        print_json(Console(), value)
        return
    console = Console()
    _print_batch(console, found)
    tries = [
        (
            str(each.attempt),
            str(each.epoch),
            each.sender,
            short_time(each.begun_at),
            short_time(each.ended_at),
            each.verdict or "[yellow]not recorded[/]",
            str(each.http_status or "-"),
            escape(each.note or ""),
        )
        for each in attempts
    ]
    columns = ("Try", "Epoch", "By", "Begun", "Ended", "Verdict", "HTTP", "Note")
    table = list_table(columns, tries, whole=("Begun", "Ended"))
    print_list(console, table, empty="not submitted yet")
    seen = [
        (
            short_time(each.seen_at),
            _state(each.state),
            each.source,
            escape(each.note or ""),
        )
        for each in sightings
    ]
    table = list_table(("Seen", "State", "By", "Note"), seen, whole=("Seen", "State"))
    print_list(console, table, empty="the ledger has not been asked yet")


def _show_alone(found: LedgerBatch, as_json: bool) -> None:
    """Over HTTP: submissions and sightings are not given there."""
    if as_json:
        print_json(Console(), _batch_json(found))
        return
    _print_batch(Console(), found)
    typer.echo("its submissions are shown where the command runs without --url")


def _print_batch(console: Console, found: LedgerBatch) -> None:
    number = f" no. {found.seq}" if found.seq else ""
    console.print(f"{found.service_id}{number}  {_state(found.state)}")
    console.print(found.batch_id, soft_wrap=True)
    if found.note:
        console.print(found.note, markup=False)


@batches_app.command()
def park(service: Service, batch: BatchId, reason: Reason) -> None:
    """Keep a batch, and the ones behind it, until it is resumed."""
    ledger = _ledger()
    found = _find(ledger, service, batch)
    state = ledger.operator.park(service, found.batch_id, actor=connect().actor, reason=reason)
    typer.echo(f"{state}; the batches behind it wait")


@batches_app.command()
def resume(service: Service, batch: BatchId, reason: Reason) -> None:
    """Let a parked batch go on; the ledger is asked first if it may have it."""
    ledger = _ledger()
    found = _find(ledger, service, batch)
    state = ledger.operator.resume(service, found.batch_id, actor=connect().actor, reason=reason)
    typer.echo(f"{state}")


@batches_app.command()
def resubmit(
    service: Service, batch: BatchId, reason: Reason, break_glass: BreakGlass = False
) -> None:
    """Send a parked or unknown batch again, without asking the ledger first."""
    ledger = _ledger()
    found = _find(ledger, service, batch)
    state = ledger.operator.resubmit(
        service, found.batch_id, actor=connect().actor, reason=reason, break_glass=break_glass
    )
    typer.echo(f"{state}; it is sent again")


@batches_app.command()
def resolve(
    service: Service,
    batch: BatchId,
    reason: Reason,
    outcome: Annotated[str, typer.Option("--as", help="COMMITTED or INVALID.")],
    break_glass: BreakGlass = False,
) -> None:
    """End a parked batch as you found it to be; the next one goes on."""
    ledger = _ledger()
    found = _find(ledger, service, batch)
    to = _parsed_state(outcome)
    state = ledger.operator.resolve(
        service, found.batch_id, to, actor=connect().actor, reason=reason, break_glass=break_glass
    )
    typer.echo(f"{state}")


@services_app.command("add")
def add_service(
    name: Service,
    kind: Annotated[str, typer.Option(help="sawtooth, scabbard, or of an installed package.")],
    url: Annotated[str, typer.Option(help="Base address; its host must be in DATP_LEDGER__HOSTS.")],
    secret: Annotated[
        str | None,
        typer.Option(help="Name of the secret that its requests carry; not given: none."),
    ] = None,
) -> None:
    """Make a ledger service, or replace the address and the secret of one (none if not given)."""
    intake, actor = _ledger().intake, connect().actor
    added = intake.add_service(name, kind=kind, url=url, secret=secret, by=actor)
    typer.echo(f"{added.service_id}: {added.kind} at {added.url}")


@services_app.command("list")
def list_services(limit: Limit = 100, as_json: AsJson = False) -> None:
    """Show all ledger services."""
    found = _ledger().batches.services(rows_max=limit)
    if as_json:
        names = ("kind", "url", "secret")
        rows = [
            {"service": each.service_id, **{name: getattr(each, name) for name in names}}
            for each in found
        ]
        print_json(Console(), rows)
        return
    services = [(each.service_id, each.kind, escape(each.url)) for each in found]
    columns = ("Service", "Kind", "Address")
    table = list_table(columns, services, whole=("Service", "Kind"))
    print_list(Console(), table, empty="no ledger services; `datp services add` names one")


def ledger_sim(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 8008,
    commit_ms: Annotated[float, typer.Option(min=0, help="From acceptance to commit.")] = 200,
    seed: Annotated[int | None, typer.Option(help="For faults with a probability.")] = None,
) -> None:
    """Run a stand-in for Sawtooth and scabbard ledgers. Its faults can be switched on:

    POST /sim/faults and /sim/options change how it behaves, POST /sim/restart makes it forget,
    GET /sim/log tells what was executed.
    """
    sim = LedgerSim(seed=seed)
    sim.options.commit_ms = commit_ms
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(sim, host, port))


async def _serve(sim: LedgerSim, host: str, port: int) -> None:
    try:
        server = await serve(sim, host, port)
    except OSError as error:
        raise LocalStackError(f"the stand-in cannot listen at {host}:{port}: {error}") from None
    place = server.sockets[0].getsockname()
    typer.echo(f"the stand-in answers at http://{place[0]}:{place[1]}")
    async with server:
        await server.serve_forever()


def _ledger() -> Ledger:
    return connect().ledger


def _find(ledger: Ledger, service: str, batch: str) -> LedgerBatch:
    """A batch by its id or the start of it."""
    matching = ledger.batches.list_batches(
        service_id=service, with_final=True, prefix=batch, rows_max=2
    )
    if len(matching) > 1:
        raise LedgerError(f"more than one batch of {service} starts with {batch!r}")
    return matching[0] if matching else ledger.batches.find(service, batch)


def _parsed_state(text: str) -> BatchState:
    try:
        return BatchState(text.upper())
    except ValueError:
        raise BatchInvalid(f"{text!r} is no state; there are {', '.join(BatchState)}") from None


def _state(state: BatchState | None) -> str:
    if state is None:
        return "-"
    colour = COLOURS.get(state)
    return f"[{colour}]{state}[/]" if colour else str(state)


def _until(claim: Claim) -> str:
    if claim.expiry is None:
        return "-"
    shown = f"{claim.expiry:%H:%M:%S}"
    return shown if claim.is_live else f"[red]{shown}, over[/]"


def _claim_json(claim: Claim) -> dict[str, Any]:
    return {
        "service": claim.service_id,
        "claimant": claim.claimant,
        "epoch": claim.epoch,
        "expiry": claim.expiry.isoformat() if claim.expiry else None,
        "isLive": claim.is_live,
        "waiting": claim.waiting,
        "head": claim.head,
        "headState": claim.head_state,
    }


def _batch_json(batch: LedgerBatch) -> dict[str, Any]:
    return {
        "service": batch.service_id,
        "batch": batch.batch_id,
        "seq": batch.seq or None,
        "owner": batch.owner,
        "state": batch.state,
        "attempts": batch.attempts,
        "resubmits": batch.resubmits,
        "nextAt": batch.next_at.isoformat() if batch.next_at else None,
        "receipt": batch.receipt,
        "note": batch.note,
        "txId": batch.tx_id,
        "createdAt": batch.created_at.isoformat(),
        "finalAt": batch.final_at.isoformat() if batch.final_at else None,
    }
