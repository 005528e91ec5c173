"""What `datp demo` will ask for: the kinds of transfers, and how much money they need."""

from __future__ import annotations

import importlib
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from datp_tasks.model.status import Status

if TYPE_CHECKING:
    from datp_tasks.record.record_types import Summary

#: A checkout has the example at its top; the wheel carries it inside the package.
EXAMPLE_ROOTS = ("examples.payments", "datp_tasks._examples.payments")
CURRENCY = "EUR"
#: Amounts up to this pass without a check of the customer, as `pipelines/kyc.yaml` says.
KYC_ABOVE = 100_000
ACCOUNTS = 20


@dataclass(frozen=True, kw_only=True)
class DemoKind:
    """One thing that can happen to a transfer."""

    label: str
    share: int
    expected: Status = Status.SUCCESS
    is_poor: bool = False
    is_high: bool = False
    #: What the person who checks the customer says, once the transfer waits for it.
    kyc: str | None = None
    delay_s: int | None = None
    is_sent_twice: bool = False


KINDS = (
    DemoKind(label="paid at once", share=40),
    DemoKind(label="paid after a short sleep", share=10, delay_s=1),
    DemoKind(label="waits for KYC, approved", share=15, is_high=True, kyc="approved"),
    DemoKind(
        label="waits for KYC, rejected",
        share=10,
        is_high=True,
        kyc="rejected",
        expected=Status.FAILED,
    ),
    DemoKind(label="not enough money", share=10, is_poor=True, expected=Status.FAILED),
    DemoKind(label="cancelled while it waits", share=10, is_high=True, expected=Status.CANCELLED),
    DemoKind(label="sent twice", share=5, is_sent_twice=True),
)


@dataclass(kw_only=True)
class Transfer:
    """One request of the demo and what became of it."""

    kind: DemoKind
    data: dict[str, Any]
    external_id: str
    tx_id: str = ""
    is_sleeping: bool = False
    is_answered: bool = False
    ended: Summary | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def is_as_expected(self) -> bool:
        return self.ended is not None and not self.problems


def example(module: str) -> ModuleType:
    """A module of the payments example ("" for the package), wherever it is installed."""
    for root in EXAMPLE_ROOTS:
        name = f"{root}.{module}".rstrip(".")
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # Something else that is missing must not be hidden.
            if error.name is None or not name.startswith(error.name):
                raise
    raise ModuleNotFoundError("the payments example is not installed")


def make_plan(rng: random.Random, run: str, transfers: int) -> list[Transfer]:
    """The requests in a random order; at least one of each kind."""
    shares = sum(kind.share for kind in KINDS)
    kinds = [kind for kind in KINDS for _ in range(max(1, transfers * kind.share // shares))]
    kinds += [KINDS[0]] * (transfers - len(kinds))
    rng.shuffle(kinds)
    return [_transfer(rng, run, number, kind) for number, kind in enumerate(kinds)]


def of_kind(plan: Iterable[Transfer], kind: DemoKind) -> list[Transfer]:
    return [transfer for transfer in plan if transfer.kind is kind]


def _transfer(rng: random.Random, run: str, number: int, kind: DemoKind) -> Transfer:
    source, target = rng.sample(range(ACCOUNTS), 2)
    high = rng.randint(KYC_ABOVE + 1, 5 * KYC_ABOVE)
    data: dict[str, Any] = {
        "from": f"{run}-poor" if kind.is_poor else f"{run}-{source:02}",
        "to": f"{run}-{target:02}",
        "amount": high if kind.is_high else rng.randint(100, KYC_ABOVE),
        "currency": CURRENCY,
    }
    if kind.delay_s is not None:
        data["delaySeconds"] = kind.delay_s
    return Transfer(kind=kind, data=data, external_id=f"{run}-tx-{number}")


def deposits(run: str, plan: Iterable[Transfer]) -> Counter[str]:
    needed = Counter({f"{run}-{number:02}": 0 for number in range(ACCOUNTS)})
    for transfer in plan:
        if not transfer.kind.is_poor:
            needed[transfer.data["from"]] += transfer.data["amount"]
    needed[f"{run}-poor"] = 1
    return needed
