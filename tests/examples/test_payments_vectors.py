"""Transfers that run as one vector on the real engine: their money moves set by set, once each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks.engine.registry import discover
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.status import Status
from datp_tasks.pipelines.files import load_definitions
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from examples.payments import PIPELINES_FOLDER, STEPS_MODULE, audit, ledger, ledger_batches
from examples.payments.sample import open_sample_accounts

Pairs = list[tuple[str, int]]


@pytest.fixture
def bank(datp_servers: Servers) -> Iterator[Kit]:
    discover([STEPS_MODULE])
    kit = Kit(datp_servers)
    with kit.connections.engine.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS payments CASCADE"))
    open_sample_accounts(kit.connections.engine)
    kit.use(*load_definitions([PIPELINES_FOLDER]))
    yield kit
    kit.close()


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many transfers were reserved by each call."""
    seen: list[int] = []
    reserve_many = ledger_batches.reserve_many

    def counted(connection: Any, wanted: Any) -> Any:
        seen.append(len(wanted))
        return reserve_many(connection, wanted)

    monkeypatch.setattr(ledger_batches, "reserve_many", counted)
    return seen


def queue(bank: Kit, *changes: dict[str, Any]) -> Pairs:
    """Transfers that are accepted while the broker loses every message."""
    data = {"from": "ann", "to": "bob", "amount": 100, "currency": "EUR"}
    bank.lose_bells()
    before = len(bank.send.rung)
    for change in changes:
        bank.submit("transfer", {**data, **change})
    bank.lose_bells(False)
    return [pair for _, pairs in bank.send.rung[before:] for pair in pairs]


def ring(bank: Kit, pairs: Pairs) -> None:
    """One bell for all of them."""
    bank.celery.tasks["datp.step.payments/validate"].apply_async(args=(pairs,)).get()


def statuses(bank: Kit, pairs: Pairs) -> list[Status]:
    return [bank.finish(tx_id).status for tx_id, _ in pairs]


def problems_and_balances(bank: Kit) -> tuple[list[str], int, int]:
    with bank.connections.engine.connect() as connection:
        found = audit.problems(connection)
        return found, ledger.balance(connection, "ann"), ledger.balance(connection, "bob")


def test_a_vector_reserves_at_once_and_each_transfer_ends_by_itself(
    bank: Kit, sizes: list[int]
) -> None:
    good: list[dict[str, Any]] = [{} for _ in range(20)]
    refused: list[dict[str, Any]] = [
        {"to": "nobody"},
        {"amount": 1_000_001},
        {"from": "bob", "to": "ann"},
    ]
    pairs = queue(bank, *good, *refused, {"amount": -1})
    ring(bank, pairs)
    assert sizes == [23]
    assert statuses(bank, pairs) == [Status.SUCCESS] * 20 + [Status.FAILED] * 4
    assert problems_and_balances(bank) == ([], 998_000, 2_000)


def test_what_is_rejected_or_cancelled_is_given_back_and_the_others_are_paid(
    bank: Kit, sizes: list[int]
) -> None:
    pairs = queue(bank, *({"amount": 200_000} for _ in range(4)))
    ring(bank, pairs)
    assert sizes == [4]
    ids = [tx_id for tx_id, _ in pairs]
    bank.set_switch(ids[0], "kyc", "approved")
    bank.set_switch(ids[1], "kyc", "rejected")
    bank.client.cancel(ids[2])
    bank.set_switch(ids[3], "kyc", "approved")
    paid, failed, cancelled = Status.SUCCESS, Status.FAILED, Status.CANCELLED
    assert statuses(bank, pairs) == [paid, failed, cancelled, paid]
    assert problems_and_balances(bank) == ([], 600_000, 400_000)


@pytest.mark.parametrize("point", ["effect.before_commit", "effect.after_commit"])
def test_a_vector_that_is_lost_at_its_commit_moves_every_amount_once(
    bank: Kit, sizes: list[int], point: str
) -> None:
    pairs = queue(bank, *({} for _ in range(10)), {"amount": 1_000_001})
    bank.crash_at(point)
    with pytest.raises(SimulatedCrash):
        ring(bank, pairs)
    bank.recover()
    assert statuses(bank, pairs) == [Status.SUCCESS] * 10 + [Status.FAILED]
    # Those that took effect are not shown to the step again.
    again = 11 if point == "effect.before_commit" else 1
    assert sum(sizes) == 11 + again
    assert problems_and_balances(bank) == ([], 999_000, 1_000)


@pytest.mark.parametrize("point", ["effect.after_commit", "hop.before_final"])
def test_a_booked_transfer_is_not_reversed_by_its_expiry(bank: Kit, point: str) -> None:
    """The worker dies when the money is at the payee; its time is over before another goes on."""
    data = {"from": "ann", "to": "bob", "amount": 100, "currency": "EUR"}
    tx_id = bank.submit("transfer", {**data, "delaySeconds": 10}, expires_in_s=30)
    assert bank.status(tx_id).status is Status.SLEEPING
    bank.crash_at(point)
    bank.advance(seconds=10)
    assert problems_and_balances(bank)[1:] == (999_900, 100)
    assert not bank.status(tx_id).is_final
    bank.advance(seconds=120)
    bank.recover()
    assert bank.status(tx_id).status is Status.SUCCESS
    assert problems_and_balances(bank) == ([], 999_900, 100)


def test_a_transfer_whose_time_is_over_before_it_is_booked_gives_the_money_back(bank: Kit) -> None:
    data = {"from": "ann", "to": "bob", "amount": 100, "currency": "EUR"}
    tx_id = bank.submit("transfer", {**data, "delaySeconds": 60}, expires_in_s=30)
    bank.advance(seconds=31)
    bank.recover()
    assert bank.status(tx_id).status is Status.EXPIRED
    assert problems_and_balances(bank) == ([], 1_000_000, 0)
