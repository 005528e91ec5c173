"""The books that transfers are measured on: those of the payments example, for every side.

This module knows SQLAlchemy and the example, and nothing of the engine, so that any peer can use
it from a virtualenv of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from examples.payments import audit, ledger, tables

ACCOUNTS = 500
CURRENCY = "EUR"
PREFIX = "bench-"
HOUSE = f"{PREFIX}bank"
#: More than all the transfers of a run could take from one account.
DEPOSIT = 10**12
#: Below what the example's `kyc` pipeline lets a person decide about.
AMOUNT_MAX = 100
SEED = 11

Data = dict[str, Any]


def open_books(engine: Engine) -> None:
    tables.create_tables(engine)
    with engine.begin() as connection:
        ledger.open_account(connection, HOUSE, CURRENCY, is_house=True)
        for account in _accounts():
            ledger.open_account(connection, account, CURRENCY)
            ledger.deposit(connection, account, house=HOUSE, account=account, amount=DEPOSIT)


def transfers(count: int, seed: int = SEED) -> list[Data]:
    """As a client of the example would ask for them."""
    random, accounts = Random(seed), _accounts()
    made = []
    for _ in range(count):
        source, target = random.sample(accounts, 2)
        amount = random.randint(1, AMOUNT_MAX)
        made.append({"from": source, "to": target, "amount": amount, "currency": CURRENCY})
    return made


def check_books(engine: Engine, committed: int) -> None:
    """All the money is there, and as many transfers as were asked for."""
    with engine.connect() as connection:
        wrong = audit.problems(connection, prefix=PREFIX)
        found = connection.execute(
            select(func.count()).select_from(tables.reservation).filter_by(state="committed")
        ).scalar_one()
    if found != committed:
        wrong.append(f"{found} transfers are committed, not {committed}")
    if wrong:
        raise AssertionError("; ".join(wrong[:10]))


def _accounts() -> list[str]:
    return [f"{PREFIX}{number:03d}" for number in range(ACCOUNTS)]


# The three steps as a peer without our engine does them: what the example's steps of the same
# names do, each of the last two in a transaction of its own.


def validate(data: Mapping[str, Any]) -> None:
    names = (data["from"], data["to"])
    if not all(isinstance(name, str) and name for name in names) or names[0] == names[1]:
        raise ValueError("from and to must be different accounts")
    if type(data["amount"]) is not int or not 0 < data["amount"] <= ledger.AMOUNT_MAX:
        raise ValueError("amount must be a whole number of minor units, above 0")
    if not isinstance(data["currency"], str) or len(data["currency"]) != 3:
        raise ValueError("currency must be three capital letters")


def reserve(connection: Connection, tx_id: str, data: Mapping[str, Any]) -> None:
    ledger.check_accounts(connection, data["currency"], data["from"], data["to"])
    ledger.reserve(connection, tx_id, data["from"], data["amount"])


def commit(connection: Connection, tx_id: str, data: Mapping[str, Any]) -> None:
    ledger.commit_transfer(connection, tx_id, target=data["to"])
