"""Moving money. Every function works inside the transaction of the connection it is given.

What changes an account locks its row first, several accounts in the order of their ids, and
only then touches reservations and entries. So no two can wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from .tables import account as accounts
from .tables import ledger_entry, reservation

AMOUNT_MAX = 10**15


class LedgerError(Exception):
    """The books do not allow this."""


class AccountUnknown(LedgerError):
    """There is no such account."""


class InsufficientFunds(LedgerError):
    """The account does not have that much available."""


class CurrencyMismatch(LedgerError):
    """The accounts are not in the same currency."""


def open_account(
    connection: Connection, account: str, currency: str, *, is_house: bool = False
) -> None:
    """Open an account with nothing in it. One that is open stays as it is."""
    connection.execute(
        upsert(accounts)
        .values(id=account, currency=currency, is_house=is_house)
        .on_conflict_do_nothing()
    )
    check_accounts(connection, currency, account)


def balance(connection: Connection, account: str) -> int:
    return int(_find(connection, account).balance)


def available(connection: Connection, account: str) -> int:
    """The balance without what is held for transactions on their way."""
    found = _find(connection, account)
    return int(found.balance - found.held)


def check_accounts(connection: Connection, currency: str, *ids: str) -> None:
    """Raise AccountUnknown or CurrencyMismatch unless all are accounts in this currency."""
    for account in ids:
        if _find(connection, account).currency != currency:
            raise CurrencyMismatch(f"the account {account} is not in {currency}")


def deposit(connection: Connection, key: str, *, house: str, account: str, amount: int) -> None:
    """Bring money from a house account into another. The same key moves money only once."""
    check_amount(amount)
    locked = _lock(connection, house, account)
    if not locked[house].is_house:
        raise LedgerError(f"{house} is not a house account")
    done = select(ledger_entry.c.id).filter_by(tx_id=key, account=account, kind="deposit")
    if connection.execute(done).first() is None:
        _move(connection, key, house, account, amount, kind="deposit")


def reserve(connection: Connection, tx_id: str, account: str, amount: int) -> None:
    """Set money aside for a transaction, or raise InsufficientFunds."""
    check_amount(amount)
    found = _lock(connection, account)[account]
    earlier = _reservation(connection, tx_id)
    if earlier is not None:
        if (earlier.account, earlier.amount, earlier.state) == (account, amount, "held"):
            return
        raise LedgerError(f"{tx_id} has a reservation already, which is {earlier.state}")
    if not found.is_house and found.balance - found.held < amount:
        raise InsufficientFunds(f"the account {account} does not have {amount} available")
    connection.execute(insert(reservation).values(tx_id=tx_id, account=account, amount=amount))
    _change(connection, account, held=amount)


def release(connection: Connection, tx_id: str) -> bool:
    """Give back what was held for a transaction; False if nothing is held any more."""
    earlier = _reservation(connection, tx_id)
    if earlier is None:
        return False
    _lock(connection, earlier.account)
    if not _end_reservation(connection, tx_id, before="held", after="released"):
        if _required_reservation(connection, tx_id).state == "committed":
            raise LedgerError(f"the money of {tx_id} has been moved; it cannot be released")
        return False
    _change(connection, earlier.account, held=-earlier.amount)
    return True


def commit_transfer(connection: Connection, tx_id: str, *, target: str) -> None:
    """Move what was held for a transaction to the target account."""
    held = _required_reservation(connection, tx_id)
    if held.account == target:
        raise LedgerError(f"{tx_id} would move money from {target} to itself")
    locked = _lock(connection, held.account, target)
    if locked[held.account].currency != locked[target].currency:
        raise CurrencyMismatch(f"{held.account} and {target} are in different currencies")
    if not _end_reservation(connection, tx_id, before="held", after="committed"):
        raise LedgerError(f"nothing is held for {tx_id}")
    _change(connection, held.account, held=-held.amount)
    _move(connection, tx_id, held.account, target, held.amount, kind="transfer")


def reverse_transfer(connection: Connection, tx_id: str) -> bool:
    """Move the money of a committed transfer back; False if there is nothing to move back.

    Raises InsufficientFunds when the target has spent it: then a person must decide.
    """
    booked = select(ledger_entry).filter_by(tx_id=tx_id, kind="transfer")
    entries = {entry.amount > 0: entry for entry in connection.execute(booked)}
    if not entries:
        return False
    source, target, amount = entries[False].account, entries[True].account, entries[True].amount
    found = _lock(connection, source, target)[target]
    if _required_reservation(connection, tx_id).state != "committed":
        return False
    if not found.is_house and found.balance - found.held < amount:
        raise InsufficientFunds(f"the account {target} has spent what {tx_id} brought")
    _end_reservation(connection, tx_id, before="committed", after="reversed")
    _move(connection, tx_id, target, source, amount, kind="reversal")
    return True


def check_amount(amount: int) -> None:
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 < amount <= AMOUNT_MAX:
        raise LedgerError(f"an amount must be a whole number from 1 to {AMOUNT_MAX}")


def _find(connection: Connection, account: str) -> Row[Any]:
    found = connection.execute(select(accounts).filter_by(id=account)).first()
    if found is None:
        raise AccountUnknown(f"there is no account {account}")
    return found


def _lock(connection: Connection, *ids: str) -> Mapping[str, Row[Any]]:
    """Lock accounts in the order of their ids, and read what they hold now."""
    locked: dict[str, Row[Any]] = {}
    # One statement for each: within one statement the order of locking is the planner's choice.
    for account in sorted(set(ids)):
        wanted = select(accounts).filter_by(id=account).with_for_update(key_share=True)
        found = connection.execute(wanted).first()
        if found is None:
            raise AccountUnknown(f"there is no account {account}")
        locked[account] = found
    return locked


def _change(connection: Connection, account: str, *, balance: int = 0, held: int = 0) -> None:
    connection.execute(
        update(accounts)
        .filter_by(id=account)
        .values(balance=accounts.c.balance + balance, held=accounts.c.held + held)
    )


def _move(
    connection: Connection, tx_id: str, source: str, target: str, amount: int, *, kind: str
) -> None:
    connection.execute(
        insert(ledger_entry),
        [
            {"tx_id": tx_id, "account": source, "amount": -amount, "kind": kind},
            {"tx_id": tx_id, "account": target, "amount": amount, "kind": kind},
        ],
    )
    _change(connection, source, balance=-amount)
    _change(connection, target, balance=amount)


def _reservation(connection: Connection, tx_id: str) -> Row[Any] | None:
    return connection.execute(select(reservation).filter_by(tx_id=tx_id)).first()


def _required_reservation(connection: Connection, tx_id: str) -> Row[Any]:
    found = _reservation(connection, tx_id)
    if found is None:
        raise LedgerError(f"{tx_id} has no reservation")
    return found


def _end_reservation(connection: Connection, tx_id: str, *, before: str, after: str) -> bool:
    """Compare and set: of two that want to end a reservation, one does."""
    changed = connection.execute(
        update(reservation)
        .filter_by(tx_id=tx_id, state=before)
        .values(state=after, ended_at=func.now())
    )
    return changed.rowcount == 1
