"""`datp demo`: a few hundred transfers of every kind at once, and a check of the books at the end.

The pipelines of the example must be applied and in use, and workers of the node groups `master`
and `kyc` must run with its step types (`example("").STEPS_MODULE`).
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from datp_tasks.cli.demo_plan import (
    CURRENCY,
    KINDS,
    Transfer,
    deposits,
    example,
    make_plan,
    of_kind,
)
from datp_tasks.cli.demo_settle import moved, settle
from datp_tasks.client.client import Client
from datp_tasks.client.requests import Request, Submitted
from datp_tasks.errors import ExternalIdConflict, TransactionError, TransactionFinal
from datp_tasks.model.status import Status
from datp_tasks.record.database import Engine

BATCH_MAX = 100
POLL_S = 0.1
PROBLEMS_SHOWN_MAX = 20
#: Clocks have a resolution; nothing ends in no time at all.
SHORTEST_S = 0.001


def run_demo(
    client: Client,
    engine: Engine,
    *,
    transfers: int = 300,
    seed: int,
    console: Console,
    timeout_s: float = 120,
    with_ledger: bool = False,
) -> bool:
    """Run the demo; True only if every transfer ended as it should and no money is missing.

    With a ledger, what was transferred is also settled there.
    """
    # The seed repeats the choices; the accounts are new each time, whatever the database holds.
    run = f"demo-{uuid.uuid4().hex[:8]}"
    plan = make_plan(random.Random(seed), run, transfers)
    open_books(engine, run, plan)
    deadline_s = time.monotonic() + timeout_s
    console.print(f"Submitting {len(plan)} transfers between the accounts [bold]{run}-…[/bold]")
    submit(client, plan)
    follow(client, plan, console, deadline_s)
    judge(plan)
    problems = [problem for transfer in plan for problem in transfer.problems]
    problems += book_problems(engine, run, plan)
    console.print(_table(plan))
    console.print(pace(plan), highlight=False, soft_wrap=True)
    if with_ledger:
        problems += settle(client, run, plan, console, deadline_s)
    _print_verdict(console, problems)
    return not problems


def open_books(engine: Engine, run: str, plan: Sequence[Transfer]) -> None:
    """New accounts, each with just enough for what it will be asked to pay at the same time."""
    tables, ledger = example("tables"), example("ledger")
    tables.create_tables(engine)
    house, needed = f"{run}-house", deposits(run, plan)
    with engine.begin() as connection:
        ledger.open_account(connection, house, CURRENCY, is_house=True)
        for account, amount in needed.items():
            ledger.open_account(connection, account, CURRENCY)
            if amount:
                ledger.deposit(connection, account, house=house, account=account, amount=amount)


def submit(client: Client, plan: Sequence[Transfer]) -> None:
    for start in range(0, len(plan), BATCH_MAX):
        batch = plan[start : start + BATCH_MAX]
        answers = client.submit_many([_request(transfer) for transfer in batch])
        for transfer, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Submitted):
                transfer.tx_id = answer.tx_id
            else:
                transfer.problems.append(f"{transfer.external_id} was refused: {answer}")
    _send_again(client, [each for each in plan if each.kind.is_sent_twice and each.tx_id])


def follow(client: Client, plan: Sequence[Transfer], console: Console, deadline_s: float) -> None:
    """Watch the transfers until all have ended, and answer those that wait for a person."""
    progress = Progress(
        TextColumn("{task.description:<26}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[asleep]} asleep"),
        TimeElapsedColumn(),
        console=console,
    )
    bars = {
        kind.label: progress.add_task(kind.label, total=len(of_kind(plan, kind)), asleep=0)
        for kind in KINDS
    }
    with progress:
        waiting = [transfer for transfer in plan if transfer.tx_id]
        while waiting and time.monotonic() < deadline_s:
            _look_at(client, waiting)
            waiting = [transfer for transfer in waiting if transfer.ended is None]
            asleep = Counter(transfer.kind.label for transfer in waiting if transfer.is_sleeping)
            for kind in KINDS:
                done = sum(transfer.ended is not None for transfer in of_kind(plan, kind))
                progress.update(bars[kind.label], completed=done, asleep=asleep[kind.label])
            time.sleep(POLL_S if waiting else 0)


def judge(plan: Iterable[Transfer]) -> None:
    """Note every transfer that did not end, or not as it should."""
    for transfer in plan:
        name, expected = f"{transfer.tx_id} ({transfer.kind.label})", transfer.kind.expected
        if transfer.ended is None:
            transfer.problems.append(f"{name} has not ended in time")
        elif transfer.ended.status != expected:
            transfer.problems.append(
                f"{name} ended as {transfer.ended.status}, not as {expected}: {transfer.ended.note}"
            )


def book_problems(engine: Engine, run: str, plan: Sequence[Transfer]) -> list[str]:
    """Is all the money there, and did each successful transfer move it exactly once?"""
    audit = example("audit")
    with engine.connect() as connection:
        unsound: list[str] = audit.problems(connection, prefix=f"{run}-")
        found = audit.balances(connection, prefix=f"{run}-")
    expected = deposits(run, plan)
    for account, amount in moved(plan).items():
        expected[account] += amount
    wrong = [
        f"{account} has {found.get(account)}, but should have {amount}"
        for account, amount in expected.items()
        if found.get(account) != amount
    ]
    return wrong + unsound


def pace(plan: Iterable[Transfer]) -> str:
    """How many transfers a second, from the first that was accepted to the last that ended."""
    summaries = [transfer.ended for transfer in plan if transfer.ended is not None]
    ends = sorted(each.completed_at for each in summaries if each.completed_at is not None)
    if not ends:
        return "No transfer has ended."
    took_s = (ends[-1] - min(each.created_at for each in summaries)).total_seconds()
    # The busiest second begins with an end.
    second = timedelta(seconds=1)
    busiest = max(bisect_left(ends, end + second) - number for number, end in enumerate(ends))
    return (
        f"{len(ends)} transfers in {took_s:.1f} s, sleeping and waiting included: "
        f"{len(ends) / max(took_s, SHORTEST_S):.0f} a second, {busiest} in the busiest second"
    )


def _request(transfer: Transfer, **other: Any) -> Request:
    data = {**transfer.data, **other}
    return Request(pipeline="transfer", input=data, external_id=transfer.external_id)


def _send_again(client: Client, transfers: Sequence[Transfer]) -> None:
    """The same request must find the same transaction; another one under its id is refused."""
    same = client.submit_many([_request(each) for each in transfers])
    changed = [_request(each, amount=each.data["amount"] + 1) for each in transfers]
    other = client.submit_many(changed)
    for transfer, again, refused in zip(transfers, same, other, strict=True):
        name = transfer.external_id
        if not isinstance(again, Submitted):
            transfer.problems.append(f"{name} was refused when it was sent again: {again}")
        elif again.tx_id != transfer.tx_id or not again.duplicate:
            transfer.problems.append(f"{name} was accepted twice: {again.tx_id}")
        if not isinstance(refused, ExternalIdConflict):
            transfer.problems.append(f"{name} was accepted for another request")


def _look_at(client: Client, transfers: Sequence[Transfer]) -> None:
    """All at once: a demo that asks for each would take the time of those who work."""
    found = client.status_many([transfer.tx_id for transfer in transfers])
    for transfer, summary in zip(transfers, found, strict=True):
        if summary is None:
            continue
        transfer.is_sleeping = summary.status == Status.SLEEPING
        if summary.status.is_final:
            transfer.ended = summary
        elif transfer.is_sleeping and transfer.kind.is_high and not transfer.is_answered:
            _answer(client, transfer)


def _answer(client: Client, transfer: Transfer) -> None:
    """Be the person for whom the transfer waits."""
    try:
        if transfer.kind.kyc is not None:
            client.set_switch(transfer.tx_id, "kyc", transfer.kind.kyc)
        else:
            client.cancel(transfer.tx_id, "the customer changed their mind")
    except TransactionFinal:
        transfer.problems.append(f"{transfer.tx_id} ended before it was answered")
    except TransactionError:
        # It is just being moved between memory and the archive; the next look tries again.
        return
    transfer.is_answered = True


def _table(plan: Sequence[Transfer]) -> Table:
    table = Table(title="How the transfers ended")
    table.add_column("kind")
    for name in ("number", "expected", "as expected", "p50 s", "max s"):
        table.add_column(name, justify="right")
    for kind in KINDS:
        group = of_kind(plan, kind)
        good = sum(transfer.is_as_expected for transfer in group)
        style = "green" if good == len(group) else "bold red"
        table.add_row(
            kind.label,
            str(len(group)),
            str(kind.expected),
            f"[{style}]{good}[/]",
            *_durations(group),
        )
    return table


def _durations(group: Iterable[Transfer]) -> tuple[str, str]:
    ends = [transfer.ended for transfer in group if transfer.ended is not None]
    took_s = [
        (end.completed_at - end.created_at).total_seconds()
        for end in ends
        if end.completed_at is not None
    ]
    if not took_s:
        return "-", "-"
    return f"{statistics.median(took_s):.2f}", f"{max(took_s):.2f}"


def _print_verdict(console: Console, problems: Sequence[str]) -> None:
    if not problems:
        console.print("[green]Every transfer ended as it should, and all the money is there.[/]")
        return
    console.print(f"[bold red]{len(problems)} problems:[/]")
    for problem in itertools.islice(problems, PROBLEMS_SHOWN_MAX):
        console.print(f"  {problem}", markup=False)
    if len(problems) > PROBLEMS_SHOWN_MAX:
        console.print(f"  … and {len(problems) - PROBLEMS_SHOWN_MAX} more")
