"""Accounts to transfer between, and what must be true of them when a transfer has ended."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Engine, text

from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary
from examples.payments import audit, ledger, tables
from tests.chaos.transfer_steps import BOOKING, SENT, WIRED
from tests.support.bank import Bank, Line, moved, problems

AMOUNT = 7
DEPOSIT = 10_000_000
CREATE_BOOKING = (
    f"CREATE TABLE IF NOT EXISTS {BOOKING} "
    "(id bigint GENERATED ALWAYS AS IDENTITY, tx_id text NOT NULL, amount int NOT NULL)"
)
LAST_BOOKING = f"SELECT coalesce(max(id), 0) FROM {BOOKING}"
BOOKINGS = (
    f"SELECT tx_id, array_agg(amount) AS amounts FROM {BOOKING} "
    "WHERE id > :after AND (tx_id = :tx_id OR :tx_id IS NULL) GROUP BY tx_id"
)
ALL_SENT = {"house": -SENT - WIRED, "partner": SENT, "fees": WIRED}


class World:
    """Two accounts with a name of their own, so that many tests can share a database.

    They lie below their owner, which alone may pay from them.
    """

    def __init__(self, engine: Engine, bank: Bank, owner: str) -> None:
        self._engine = engine
        self.bank = bank
        self.prefix = f"{owner}/w{secrets.token_hex(4)}-"
        #: What others did at the bank before is their business.
        self._lines_before = len(bank.log())
        self._balances_before = bank.balances()
        tables.create_tables(engine)
        with engine.begin() as sql:
            sql.execute(text(CREATE_BOOKING))
            self._bookings_before = int(sql.execute(text(LAST_BOOKING)).scalar_one())
            ledger.open_account(sql, self._id("house"), "EUR", is_house=True)
            for name in ("ann", "bob"):
                ledger.open_account(sql, self._id(name), "EUR")
            house, ann = self._id("house"), self._id("ann")
            ledger.deposit(sql, self.prefix, house=house, account=ann, amount=DEPOSIT)

    def _id(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def request(self, **more: Any) -> dict[str, Any]:
        """What to submit; `fails`, `blind` and `night_s` are for the steps."""
        accounts = {"from": self._id("ann"), "to": self._id("bob")}
        return {**accounts, "amount": AMOUNT, "currency": "EUR", **more}

    def balance_of(self, name: str) -> int:
        with self._engine.connect() as sql:
            return ledger.balance(sql, self._id(name))

    def complaints(self) -> Iterator[str]:
        """What is wrong when nothing is on its way."""
        with self._engine.connect() as sql:
            yield from audit.problems(sql, prefix=self.prefix)
        yield from problems(self.lines(), self._balances())
        for tx_id, amounts in self._bookings().items():
            if sorted(amounts) not in ([1], [-1, 1]):
                yield f"{tx_id} is booked as {amounts}"

    def _bookings(self, tx_id: str | None = None) -> dict[str, list[int]]:
        """What `chaos/book` has written since this world began, by transaction."""
        wanted = {"after": self._bookings_before, "tx_id": tx_id}
        with self._engine.connect() as sql:
            return {row.tx_id: row.amounts for row in sql.execute(text(BOOKINGS), wanted)}

    def lines(self) -> list[Line]:
        """The bank's log, since this world began."""
        return self.bank.log()[self._lines_before :]

    def _balances(self) -> dict[str, int]:
        before = self._balances_before
        return {name: now - before.get(name, 0) for name, now in self.bank.balances().items()}

    def complaints_about(self, summary: Summary) -> Iterator[str]:
        """What is wrong with one transfer and with the world, when nothing else is on its way."""
        success = summary.status is Status.SUCCESS
        at_bank = moved(self.lines(), summary.tx_id)
        if at_bank != (ALL_SENT if success else {}):
            yield f"{summary.tx_id}: {summary.status}, but at the bank it moved {at_bank}"
        booked = self._bookings(summary.tx_id).get(summary.tx_id, [])
        if sum(booked) != (1 if success else 0):
            yield f"{summary.tx_id}: {summary.status}, but it is booked as {booked}"
        yield from self.complaints()
