"""The settlement at the end of the demo says no when the ledger was told anything else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, cast

import pytest
from rich.console import Console

from datp_tasks.cli.demo_plan import KINDS, Transfer
from datp_tasks.cli.demo_settle import SETTLEMENTS_MAX, settle
from datp_tasks.client.client import Client
from datp_tasks.client.requests import Submitted
from datp_tasks.errors import WaitTimeout
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary


@dataclass
class Ended:
    """As much of a summary as the demo reads."""

    status: Status
    output: dict[str, Any] | None = None
    tx_id: str = "t00-1"
    note: str = "a reason"


@dataclass
class Ledger:
    """A client whose settlements have these positions, in turn; then nothing is left."""

    settlements: list[Mapping[str, int]]
    last: Status | None = Status.ABORTED
    asked: list[str] = field(default_factory=list)

    def submit(self, pipeline: str, data: dict[str, Any], *, external_id: str) -> Submitted:
        assert (pipeline, data["prefix"]) == ("settlement", "run-")
        self.asked.append(external_id)
        return Submitted(f"t00-{len(self.asked)}", Status.QUEUED)

    def wait(self, tx_id: str, timeout_s: float) -> Ended:
        number = len(self.asked) - 1
        if number < len(self.settlements):
            shown = {name: str(amount) for name, amount in self.settlements[number].items()}
            batch = {"positions": shown}
            ledger = {"batch": "b" * 128}
            return Ended(Status.SUCCESS, {"settlement": batch, "ledger": ledger, "entries": 2})
        if self.last is None:
            raise WaitTimeout(f"{tx_id} has not ended")
        return Ended(self.last)


def transfer(status: Status, amount: int = 5) -> Transfer:
    data = {"from": "run-a", "to": "run-b", "amount": amount}
    ended = cast(Summary, Ended(status))
    return Transfer(kind=KINDS[0], data=data, external_id="x", ended=ended)


PLAN = [transfer(Status.SUCCESS), transfer(Status.SUCCESS, 7), transfer(Status.FAILED, 100)]


def problems(ledger: Ledger) -> list[str]:
    console = Console(file=StringIO())
    return settle(cast(Client, ledger), "run", PLAN, console, time.monotonic() + 60)


def test_several_settlements_that_add_up_are_right() -> None:
    ledger = Ledger([{"run-a": -5, "run-b": 5}, {"run-a": -7, "run-b": 7}])
    assert problems(ledger) == []
    assert len(set(ledger.asked)) == 3


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ([], "run-a: the ledger was told 0, but -12 was moved"),
        ([{"run-a": -5, "run-b": 5}], "run-a: the ledger was told -5, but -12 was moved"),
        ([{"run-a": -12, "run-b": 12}] * 2, "run-a: the ledger was told -24, but -12 was moved"),
        (
            [{"run-a": -12, "run-b": 12, "run-c": 1}],
            "run-c: the ledger was told 1, but 0 was moved",
        ),
    ],
)
def test_what_was_not_settled_or_settled_twice_is_named(
    told: list[Mapping[str, int]], wrong: str
) -> None:
    assert wrong in problems(Ledger(told))


def test_a_settlement_that_fails_or_does_not_end_is_named() -> None:
    assert problems(Ledger([], last=Status.FAILED)) == [
        "t00-1 (settlement) ended as failed: a reason"
    ]
    assert problems(Ledger([], last=None)) == ["t00-1 (settlement) has not ended in time"]


def test_settlements_that_never_end_are_given_up() -> None:
    ledger = Ledger([{"run-a": -12, "run-b": 12}] * (SETTLEMENTS_MAX + 5))
    assert problems(ledger)
    assert len(ledger.asked) == SETTLEMENTS_MAX
