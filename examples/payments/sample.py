"""Two accounts to try things with: ann has 10,000.00 EUR, bob has nothing yet."""

from __future__ import annotations

from sqlalchemy import Engine

from . import ledger, tables


def open_sample_accounts(engine: Engine) -> None:
    """Safe to repeat: what is there stays, and the money is brought in once."""
    tables.create_tables(engine)
    with engine.begin() as connection:
        ledger.open_account(connection, "bank", "EUR", is_house=True)
        ledger.open_account(connection, "ann", "EUR")
        ledger.open_account(connection, "bob", "EUR")
        ledger.deposit(connection, "sample", house="bank", account="ann", amount=1_000_000)
