"""Moving the money of many transactions at once: as `ledger`, but set by set.

A constant number of statements, whether for 1 transfer or for 100. Each function decides in the
order in which the transactions are given, as if they came one after another, and answers for each
of them with the error that `ledger` would raise, or None. One that is refused changes nothing and
stops none of the others.

The order of locking is that of `ledger`: accounts by their ids, then reservations and entries. So
both can be used on the same books at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row

from .ledger import (
    AccountUnknown,
    CurrencyMismatch,
    InsufficientFunds,
    LedgerError,
    check_amount,
)

#: Transaction → why it was refused, or None.
Refusals = dict[str, LedgerError | None]

# The rows are locked above the sort, so in its order. In the collation "C" that is the order in
# which Python sorts, whatever the database's own collation is.
LOCK_ACCOUNTS = """
SELECT id, currency, is_house, balance, held FROM payments.account
WHERE id = ANY(%(ids)s::text[]) ORDER BY id COLLATE "C" FOR NO KEY UPDATE
"""

CURRENCIES = "SELECT id, currency FROM payments.account WHERE id = ANY(%(ids)s::text[])"

RESERVATIONS = """
SELECT tx_id, account, amount, state FROM payments.reservation WHERE tx_id = ANY(%(ids)s::text[])
"""

TRANSFERS = """
SELECT tx_id, account, amount FROM payments.ledger_entry
WHERE tx_id = ANY(%(ids)s::text[]) AND kind = 'transfer'
"""

RESERVE = """
INSERT INTO payments.reservation (tx_id, account, amount)
SELECT * FROM unnest(%(ids)s::text[], %(accounts)s::text[], %(amounts)s::bigint[])
"""

# Compare and set: of two that want to end a reservation, one does.
END_RESERVATIONS = """
UPDATE payments.reservation SET state = %(after)s, ended_at = now()
WHERE tx_id = ANY(%(ids)s::text[]) AND state = %(before)s RETURNING tx_id
"""

CHANGE_ACCOUNTS = """
UPDATE payments.account SET balance = balance + change.of_balance, held = held + change.of_held
FROM unnest(%(ids)s::text[], %(balances)s::bigint[], %(helds)s::bigint[])
    AS change (account, of_balance, of_held)
WHERE id = change.account
"""

BOOK = """
INSERT INTO payments.ledger_entry (tx_id, account, amount, kind)
SELECT tx_id, account, amount, %(kind)s
FROM unnest(%(ids)s::text[], %(accounts)s::text[], %(amounts)s::bigint[])
    WITH ORDINALITY AS entry (tx_id, account, amount, number)
ORDER BY number
"""


class Wanted(NamedTuple):
    """Money to be set aside for a transfer."""

    tx_id: str
    source: str
    target: str
    currency: str
    amount: int


class Movement(NamedTuple):
    tx_id: str
    source: str
    target: str
    amount: int

    def entries(self) -> tuple[tuple[str, str, int], ...]:
        """Two, which add up to zero."""
        return (self.tx_id, self.source, -self.amount), (self.tx_id, self.target, self.amount)


@dataclass
class Account:
    """A locked account, with what the batch has decided so far."""

    currency: str
    is_house: bool
    balance: int
    held: int

    def covers(self, amount: int) -> bool:
        return self.is_house or self.balance - self.held >= amount


@dataclass
class Changes:
    """What the batch changes: the accounts in sum, the entries one by one."""

    balances: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    helds: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    movements: list[Movement] = field(default_factory=list)

    def move(self, movement: Movement) -> None:
        self.balances[movement.source] -= movement.amount
        self.balances[movement.target] += movement.amount
        self.movements.append(movement)

    def write(self, connection: Connection, *, kind: str = "") -> None:
        accounts = sorted(self.balances.keys() | self.helds.keys())
        if accounts:
            connection.exec_driver_sql(
                CHANGE_ACCOUNTS,
                {
                    "ids": accounts,
                    "balances": [self.balances[account] for account in accounts],
                    "helds": [self.helds[account] for account in accounts],
                },
            )
        if self.movements:
            entries = [entry for movement in self.movements for entry in movement.entries()]
            connection.exec_driver_sql(
                BOOK,
                {
                    "kind": kind,
                    "ids": [tx_id for tx_id, _, _ in entries],
                    "accounts": [account for _, account, _ in entries],
                    "amounts": [amount for _, _, amount in entries],
                },
            )


def reserve_many(connection: Connection, wanted: Sequence[Wanted]) -> Refusals:
    """Set money aside for each transfer; several of one account see each other's."""
    currencies = _currencies(connection, wanted)
    answers: Refusals = {each.tx_id: _mistake(each, currencies) for each in wanted}
    sound = [each for each in wanted if answers[each.tx_id] is None]
    accounts = _lock(connection, (each.source for each in sound))
    earlier = _reservations(connection, [each.tx_id for each in sound])
    new: list[Wanted] = []
    for each in sound:
        account, found = accounts[each.source], earlier.get(each.tx_id)
        if found is not None:
            answers[each.tx_id] = _other_reservation(each, found)
        elif not account.covers(each.amount):
            answers[each.tx_id] = InsufficientFunds(
                f"the account {each.source} does not have {each.amount} available"
            )
        else:
            account.held += each.amount
            new.append(each)
    if new:
        _insert_reservations(connection, new)
    return answers


def release_many(connection: Connection, tx_ids: Sequence[str]) -> Refusals:
    """Give back what is held for each transaction, if anything is."""
    earlier = _reservations(connection, tx_ids)
    _lock(connection, (found.account for found in earlier.values()))
    released = _end_reservations(connection, earlier, before="held", after="released")
    # Those that were not held may have been moved just before the lock, so they are read again.
    others = _reservations(connection, [tx_id for tx_id in earlier if tx_id not in released])
    changes = Changes()
    for tx_id in released:
        changes.helds[earlier[tx_id].account] -= earlier[tx_id].amount
    changes.write(connection)
    answers: Refusals = dict.fromkeys(tx_ids)
    for tx_id, found in others.items():
        if found.state == "committed":
            answers[tx_id] = LedgerError(
                f"the money of {tx_id} has been moved; it cannot be released"
            )
    return answers


def commit_many(connection: Connection, targets: Mapping[str, str]) -> Refusals:
    """Move what is held for each transaction to its target account."""
    held = _reservations(connection, list(targets))
    accounts = _lock(
        connection, [*(found.account for found in held.values()), *map(targets.__getitem__, held)]
    )
    answers: Refusals = {
        tx_id: _uncommittable(tx_id, target, held.get(tx_id), accounts)
        for tx_id, target in targets.items()
    }
    sound = [tx_id for tx_id, mistake in answers.items() if mistake is None]
    committed = _end_reservations(connection, sound, before="held", after="committed")
    changes = Changes()
    for tx_id in sound:
        if tx_id in committed:
            found = held[tx_id]
            changes.helds[found.account] -= found.amount
            changes.move(Movement(tx_id, found.account, targets[tx_id], found.amount))
        else:
            answers[tx_id] = LedgerError(f"nothing is held for {tx_id}")
    changes.write(connection, kind="transfer")
    return answers


def reverse_many(connection: Connection, tx_ids: Sequence[str]) -> Refusals:
    """Move the money of each committed transfer back, unless its target has spent it."""
    booked = _transfers(connection, tx_ids)
    accounts = _lock(
        connection, (name for each in booked.values() for name in (each.source, each.target))
    )
    states = _reservations(connection, list(booked))
    answers: Refusals = dict.fromkeys(tx_ids)
    changes = Changes()
    for tx_id, movement in ((tx_id, booked[tx_id]) for tx_id in tx_ids if tx_id in booked):
        payee, payer = accounts[movement.source], accounts[movement.target]
        if tx_id not in states:
            answers[tx_id] = LedgerError(f"{tx_id} has no reservation")
        elif states[tx_id].state == "committed" and payee.covers(movement.amount):
            payee.balance -= movement.amount
            payer.balance += movement.amount
            changes.move(movement)
        elif states[tx_id].state == "committed":
            answers[tx_id] = InsufficientFunds(
                f"the account {movement.source} has spent what {tx_id} brought"
            )
    reversed_ids = [movement.tx_id for movement in changes.movements]
    _end_reservations(connection, reversed_ids, before="committed", after="reversed")
    changes.write(connection, kind="reversal")
    return answers


def _mistake(wanted: Wanted, currencies: Mapping[str, str]) -> LedgerError | None:
    """What can be said without a lock: the currency of an account never changes."""
    for account in (wanted.source, wanted.target):
        if account not in currencies:
            return AccountUnknown(f"there is no account {account}")
        if currencies[account] != wanted.currency:
            return CurrencyMismatch(f"the account {account} is not in {wanted.currency}")
    try:
        check_amount(wanted.amount)
    except LedgerError as error:
        return error
    return None


def _other_reservation(wanted: Wanted, found: Row[Any]) -> LedgerError | None:
    if (found.account, found.amount, found.state) == (wanted.source, wanted.amount, "held"):
        return None
    return LedgerError(f"{wanted.tx_id} has a reservation already, which is {found.state}")


def _uncommittable(
    tx_id: str, target: str, found: Row[Any] | None, accounts: Mapping[str, Account]
) -> LedgerError | None:
    if found is None:
        return LedgerError(f"{tx_id} has no reservation")
    if found.account == target:
        return LedgerError(f"{tx_id} would move money from {target} to itself")
    if target not in accounts:
        return AccountUnknown(f"there is no account {target}")
    if accounts[found.account].currency != accounts[target].currency:
        return CurrencyMismatch(f"{found.account} and {target} are in different currencies")
    return None


def _currencies(connection: Connection, wanted: Iterable[Wanted]) -> Mapping[str, str]:
    ids = [account for each in wanted for account in (each.source, each.target)]
    return {row.id: row.currency for row in _rows(connection, CURRENCIES, ids)}


def _lock(connection: Connection, ids: Iterable[str]) -> Mapping[str, Account]:
    """Lock accounts in the order of their ids, and read what they hold now."""
    return {
        row.id: Account(row.currency, row.is_house, row.balance, row.held)
        for row in _rows(connection, LOCK_ACCOUNTS, ids)
    }


def _reservations(connection: Connection, tx_ids: Iterable[str]) -> Mapping[str, Row[Any]]:
    return {row.tx_id: row for row in _rows(connection, RESERVATIONS, tx_ids)}


def _transfers(connection: Connection, tx_ids: Iterable[str]) -> Mapping[str, Movement]:
    """How to move back what each transaction has moved."""
    gave: dict[str, str] = {}
    got: dict[str, tuple[str, int]] = {}
    for row in _rows(connection, TRANSFERS, tx_ids):
        if row.amount < 0:
            gave[row.tx_id] = row.account
        else:
            got[row.tx_id] = (row.account, row.amount)
    return {
        tx_id: Movement(tx_id, source=account, target=gave[tx_id], amount=amount)
        for tx_id, (account, amount) in got.items()
    }


def _rows(connection: Connection, statement: str, ids: Iterable[str]) -> Sequence[Row[Any]]:
    wanted = sorted(set(ids))
    return connection.exec_driver_sql(statement, {"ids": wanted}).all() if wanted else []


def _insert_reservations(connection: Connection, wanted: Sequence[Wanted]) -> None:
    connection.exec_driver_sql(
        RESERVE,
        {
            "ids": [each.tx_id for each in wanted],
            "accounts": [each.source for each in wanted],
            "amounts": [each.amount for each in wanted],
        },
    )
    changes = Changes()
    for each in wanted:
        changes.helds[each.source] += each.amount
    changes.write(connection)


def _end_reservations(
    connection: Connection, tx_ids: Iterable[str], *, before: str, after: str
) -> set[str]:
    """Those that were in the state before; they are in the state after now."""
    ids = sorted(tx_ids)
    if not ids:
        return set()
    given = {"ids": ids, "before": before, "after": after}
    return set(connection.exec_driver_sql(END_RESERVATIONS, given).scalars())
