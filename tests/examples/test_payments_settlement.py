"""The settlement of the payments example: every transfer goes into one batch, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, text

from datp_tasks.engine.registry import discover
from datp_tasks.ledger.batch_list import payloads
from datp_tasks.ledger.sim.sim_server import LedgerSim, SimThread
from datp_tasks.model.actor import Actor
from datp_tasks.model.status import Status
from datp_tasks.pipelines.files import load_definitions
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from examples.payments import PIPELINES_FOLDER, SETTLEMENT_SERVICE, STEPS_MODULE, settlement
from examples.payments import ledger as books
from examples.payments.sample import open_sample_accounts
from examples.payments.tables import create_tables


@pytest.fixture
def bank(datp_servers: Servers) -> Iterator[Kit]:
    """The example in use, with a ledger to settle in."""
    discover([STEPS_MODULE])
    kit = Kit(datp_servers)
    engine = kit.connections.engine
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS payments CASCADE"))
    open_sample_accounts(engine)
    kit.use(*load_definitions([PIPELINES_FOLDER]))
    sim = LedgerSim(seed=1, clock=lambda: (kit.clock.now_ms() or 0) / 1_000)
    sim.options.commit_ms = 0
    thread = SimThread(sim).start()
    kit.client.add_service(SETTLEMENT_SERVICE, kind="sawtooth", url=thread.url)
    yield kit
    thread.stop()
    kit.close()


def transfer(bank: Kit, amount: int) -> None:
    data = {"from": "ann", "to": "bob", "amount": amount, "currency": "EUR"}
    assert bank.run("transfer", data).status is Status.SUCCESS


def settle(bank: Kit, **data: Any) -> Any:
    tx_id = bank.submit("settlement", {"currency": "EUR", **data})
    for _ in range(5):
        bank.advance(seconds=2)
    return bank.status(tx_id)


def entries(bank: Kit) -> list[Any]:
    with bank.connections.engine.connect() as connection:
        return list(
            connection.execute(
                text("SELECT entry_id, tx_id, batch FROM payments.settled_entry ORDER BY entry_id")
            )
        )


def test_transfers_are_settled_in_one_batch_and_only_once(bank: Kit) -> None:
    for amount in (100, 250):
        transfer(bank, amount)
    first = settle(bank)
    assert first.status is Status.SUCCESS
    assert first.output["entries"] == 4
    assert first.output["settlement"]["positions"] == {"ann": "-350", "bob": "350"}
    batch = first.output["ledger"]["batch"]
    assert {row.batch for row in entries(bank)} == {batch}
    # What the ledger got is what the entries say.
    with bank.connections.engine.connect() as connection:
        sent = connection.exec_driver_sql("SELECT payload FROM ledger_batch").scalar_one()
    assert json.loads(payloads(bytes(sent))[0])["positions"] == {"ann": "-350", "bob": "350"}
    transfer(bank, 7)
    second = settle(bank)
    assert second.output["settlement"]["positions"] == {"ann": "-7", "bob": "7"}
    assert len(entries(bank)) == 6


def test_nothing_to_settle_ends_without_a_batch(bank: Kit) -> None:
    ended = settle(bank)
    assert (ended.status, ended.note) == (Status.ABORTED, "there is nothing to settle")
    assert bank.client.batches(with_final=True) == []
    assert settle(bank, currency="euro").status is Status.FAILED


def test_a_settlement_that_the_ledger_refuses_gives_its_entries_back(bank: Kit) -> None:
    transfer(bank, 100)
    tx_id = bank.submit("settlement", {"currency": "EUR"})
    [batch] = bank.client.batches()
    operator = bank.connections.ledger.operator
    operator.park(SETTLEMENT_SERVICE, batch.batch_id, actor=Actor(name="ann"), reason="look")
    from datp_tasks.model.ledger_batch import BatchState

    operator.resolve(
        SETTLEMENT_SERVICE, batch.batch_id, BatchState.INVALID, actor=Actor(name="ann"), reason="no"
    )
    assert bank.status(tx_id).status is Status.FAILED
    assert entries(bank) == []
    assert settle(bank).status is Status.SUCCESS
    assert len(entries(bank)) == 2


def test_two_settlements_at_once_share_the_entries(payments_engine: Engine) -> None:
    create_tables(payments_engine)
    with payments_engine.begin() as connection:
        books.open_account(connection, "bank", "EUR", is_house=True)
        books.open_account(connection, "ann", "EUR")
        books.open_account(connection, "bob", "EUR")
        books.deposit(connection, "d", house="bank", account="ann", amount=1_000)
        for number in range(20):
            books.reserve(connection, f"t{number}", "ann", 5)
            books.commit_transfer(connection, f"t{number}", target="bob")

    def collect(number: int) -> dict[str, int]:
        with payments_engine.begin() as connection:
            return dict(settlement.collect(connection, f"s{number}", "EUR"))

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(collect, range(4)))
    assert sum(part.get("bob", 0) for part in parts) == 100
    assert sum(part.get("ann", 0) for part in parts) == -100
