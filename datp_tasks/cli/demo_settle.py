"""The last part of `datp demo`: what was transferred is settled in an outside ledger, each once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from rich.console import Console

from datp_tasks.cli.demo_plan import CURRENCY, Transfer
from datp_tasks.client.client import Client
from datp_tasks.errors import WaitTimeout
from datp_tasks.model.status import Status

#: One settlement takes thousands of entries, so more are a sign that it never ends.
SETTLEMENTS_MAX = 100


def settle(
    client: Client, run: str, plan: Iterable[Transfer], console: Console, deadline_s: float
) -> list[str]:
    """Settle until nothing is left; what is wrong with what the ledger was told."""
    told: Counter[str] = Counter()
    for number in range(1, SETTLEMENTS_MAX + 1):
        submitted = client.submit(
            "settlement",
            {"currency": CURRENCY, "prefix": f"{run}-"},
            external_id=f"{run}-settlement-{number}",
        )
        try:
            ended = client.wait(submitted.tx_id, max(0.0, deadline_s - time.monotonic()))
        except WaitTimeout:
            return [f"{submitted.tx_id} (settlement) has not ended in time"]
        if ended.status == Status.ABORTED:
            # There was nothing left to settle.
            break
        if ended.status != Status.SUCCESS or ended.output is None:
            return [f"{ended.tx_id} (settlement) ended as {ended.status}: {ended.note}"]
        for account, amount in ended.output["settlement"]["positions"].items():
            told[account] += int(amount)
        console.print(
            f"Settled {ended.output['entries']} entries in the ledger, "
            f"batch {ended.output['ledger']['batch'][:12]}…"
        )
    return _differences(told, moved(plan))


def moved(plan: Iterable[Transfer]) -> Counter[str]:
    """What each account got or gave by the transfers that succeeded."""
    net: Counter[str] = Counter()
    for transfer in plan:
        if transfer.ended is not None and transfer.ended.status == Status.SUCCESS:
            net[transfer.data["from"]] -= transfer.data["amount"]
            net[transfer.data["to"]] += transfer.data["amount"]
    return net


def _differences(told: Counter[str], expected: Counter[str]) -> list[str]:
    return [
        f"{account}: the ledger was told {told[account]}, but {expected[account]} was moved"
        for account in sorted(told.keys() | expected.keys())
        if told[account] != expected[account]
    ]
