"""The books of the payments example, on a real PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, Engine, Executable, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from examples.payments import audit, ledger, tables


@pytest.fixture
def books(payments_engine: Engine) -> Iterator[Connection]:
    """An open transaction with a house, ann (1,000) and bob (0); undone after the test."""
    tables.create_tables(payments_engine)
    with payments_engine.connect() as connection:
        open_books(connection, "", ann=1_000, bob=0)
        yield connection
        connection.rollback()


def open_books(connection: Connection, prefix: str, **funds: int) -> None:
    ledger.open_account(connection, f"{prefix}house", "EUR", is_house=True)
    for name, amount in funds.items():
        ledger.open_account(connection, f"{prefix}{name}", "EUR")
        if amount:
            ledger.deposit(
                connection,
                f"{prefix}{name}",
                house=f"{prefix}house",
                account=f"{prefix}{name}",
                amount=amount,
            )


def has(connection: Connection, **expected: tuple[int, int]) -> bool:
    """Do the accounts have these (balance, available)?"""
    return expected == {
        name: (ledger.balance(connection, name), ledger.available(connection, name))
        for name in expected
    }


def test_a_reservation_holds_money_and_release_gives_it_back(books: Connection) -> None:
    ledger.reserve(books, "tx", "ann", 400)
    assert has(books, ann=(1_000, 600), bob=(0, 0))
    assert ledger.release(books, "tx") is True
    assert ledger.release(books, "tx") is False
    assert has(books, ann=(1_000, 1_000), bob=(0, 0))
    assert audit.problems(books) == []


def test_a_transfer_moves_what_was_held(books: Connection) -> None:
    ledger.reserve(books, "tx", "ann", 400)
    ledger.commit_transfer(books, "tx", target="bob")
    assert has(books, ann=(600, 600), bob=(400, 400), house=(-1_000, -1_000))
    assert audit.problems(books) == []


def test_a_transfer_cannot_be_committed_twice(books: Connection) -> None:
    ledger.reserve(books, "tx", "ann", 400)
    ledger.commit_transfer(books, "tx", target="bob")
    with pytest.raises(ledger.LedgerError, match="nothing is held for tx"):
        ledger.commit_transfer(books, "tx", target="bob")
    assert has(books, ann=(600, 600), bob=(400, 400))


def test_reserving_twice_holds_once_and_never_something_else(books: Connection) -> None:
    ledger.reserve(books, "tx", "ann", 400)
    ledger.reserve(books, "tx", "ann", 400)
    assert has(books, ann=(1_000, 600))
    with pytest.raises(ledger.LedgerError, match="has a reservation already"):
        ledger.reserve(books, "tx", "ann", 401)
    ledger.release(books, "tx")
    with pytest.raises(ledger.LedgerError, match="which is released"):
        ledger.reserve(books, "tx", "ann", 400)


def test_no_owner_can_reserve_more_than_is_available(books: Connection) -> None:
    ledger.reserve(books, "tx-1", "ann", 700)
    with pytest.raises(ledger.InsufficientFunds, match="ann does not have 301 available"):
        ledger.reserve(books, "tx-2", "ann", 301)
    ledger.reserve(books, "tx-2", "ann", 300)
    assert has(books, ann=(1_000, 0))


def test_committed_money_is_not_released_but_can_be_reversed(books: Connection) -> None:
    ledger.reserve(books, "tx", "ann", 400)
    ledger.commit_transfer(books, "tx", target="bob")
    with pytest.raises(ledger.LedgerError, match="it cannot be released"):
        ledger.release(books, "tx")
    assert ledger.reverse_transfer(books, "tx") is True
    assert ledger.reverse_transfer(books, "tx") is False
    assert ledger.release(books, "tx") is False
    assert has(books, ann=(1_000, 1_000), bob=(0, 0))
    assert audit.problems(books) == []


def test_what_the_payee_has_spent_cannot_be_reversed(books: Connection) -> None:
    ledger.reserve(books, "tx", "ann", 400)
    ledger.commit_transfer(books, "tx", target="bob")
    ledger.reserve(books, "other", "bob", 1)
    with pytest.raises(ledger.InsufficientFunds, match="bob has spent what tx brought"):
        ledger.reverse_transfer(books, "tx")
    assert has(books, ann=(600, 600), bob=(400, 399))


def test_releasing_or_reversing_what_never_was_is_harmless(books: Connection) -> None:
    assert ledger.release(books, "never") is False
    assert ledger.reverse_transfer(books, "never") is False
    ledger.reserve(books, "held", "ann", 1)
    assert ledger.reverse_transfer(books, "held") is False
    with pytest.raises(ledger.LedgerError, match="never has no reservation"):
        ledger.commit_transfer(books, "never", target="bob")


@pytest.mark.parametrize("amount", [0, -1, 1.5, True, "5", ledger.AMOUNT_MAX + 1])
def test_amounts_are_whole_numbers_above_zero(books: Connection, amount: int) -> None:
    with pytest.raises(ledger.LedgerError, match="an amount must be a whole number"):
        ledger.reserve(books, "tx", "ann", amount)


def test_wrong_accounts_are_refused(books: Connection) -> None:
    ledger.open_account(books, "yen", "JPY")
    ledger.reserve(books, "tx", "ann", 5)
    with pytest.raises(ledger.AccountUnknown, match="there is no account nobody"):
        ledger.reserve(books, "tx-2", "nobody", 5)
    with pytest.raises(ledger.AccountUnknown):
        ledger.commit_transfer(books, "tx", target="nobody")
    with pytest.raises(ledger.CurrencyMismatch):
        ledger.commit_transfer(books, "tx", target="yen")
    with pytest.raises(ledger.LedgerError, match="to itself"):
        ledger.commit_transfer(books, "tx", target="ann")
    with pytest.raises(ledger.CurrencyMismatch):
        ledger.check_accounts(books, "EUR", "ann", "yen")
    with pytest.raises(ledger.CurrencyMismatch):
        ledger.open_account(books, "ann", "USD")
    with pytest.raises(ledger.LedgerError, match="bob is not a house account"):
        ledger.deposit(books, "d", house="bob", account="ann", amount=5)


def test_the_same_deposit_moves_money_once(books: Connection) -> None:
    for _ in range(2):
        ledger.deposit(books, "d", house="house", account="bob", amount=7)
    assert has(books, bob=(7, 7))


OVERDRAW = update(tables.account).filter_by(id="ann").values(balance=-1)
HOLD_TOO_MUCH = update(tables.account).filter_by(id="ann").values(held=1_001)
BOOK_TWICE = insert(tables.ledger_entry).values(
    tx_id="ann", account="ann", amount=5, kind="deposit"
)
BOOK_NOTHING = insert(tables.ledger_entry).values(
    tx_id="n", account="ann", amount=0, kind="deposit"
)
ENDED_WITHOUT_TIME = insert(tables.reservation).values(
    tx_id="r", account="ann", amount=5, state="released"
)


@pytest.mark.parametrize(
    "statement", [OVERDRAW, HOLD_TOO_MUCH, BOOK_TWICE, BOOK_NOTHING, ENDED_WITHOUT_TIME]
)
def test_the_database_itself_refuses_what_must_not_be(
    books: Connection, statement: Executable
) -> None:
    with pytest.raises(IntegrityError):
        books.execute(statement)


def drop_an_entry(books: Connection) -> None:
    books.execute(text("DELETE FROM payments.ledger_entry WHERE account = 'ann'"))


def forget_a_reservation(books: Connection) -> None:
    ledger.reserve(books, "tx", "ann", 5)


def change_a_balance(books: Connection) -> None:
    books.execute(update(tables.account).filter_by(id="bob").values(balance=1))


def hold_without_reservation(books: Connection) -> None:
    books.execute(update(tables.account).filter_by(id="ann").values(held=5))


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (drop_an_entry, "the entries in EUR add up to -1000, not to 0"),
        (drop_an_entry, "ann says 1000, but its entries add up to 0"),
        (forget_a_reservation, "tx still holds 5"),
        (change_a_balance, "bob says 1, but its entries add up to 0"),
        (hold_without_reservation, "ann says 5 is held, but its reservations say otherwise"),
    ],
)
def test_the_audit_finds_what_is_wrong(
    books: Connection, spoil: Callable[[Connection], None], problem: str
) -> None:
    assert audit.problems(books) == []
    spoil(books)
    assert problem in audit.problems(books)
    assert audit.problems(books, prefix="someone-else") == []


def test_tables_can_be_created_by_many_at_once(payments_engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(tables.create_tables, payments_engine) for _ in range(8)]:
            done.result(timeout=30)
    with payments_engine.connect() as connection:
        assert connection.execute(select(tables.account.c.id)).all() == []


def transfer_or_not(engine: Engine, prefix: str, number: int) -> str:
    """One transfer between random accounts, step by step as the pipeline does it."""
    rng = random.Random(number)
    source, target = rng.sample(range(4), 2)
    tx_id = f"{prefix}{number}"
    try:
        with engine.begin() as connection:
            ledger.reserve(connection, tx_id, f"{prefix}a{source}", rng.randint(1, 150))
    except ledger.InsufficientFunds:
        return "refused"
    how = rng.choice(["commit", "commit", "commit", "release", "reverse"])
    with engine.begin() as connection:
        if how == "release":
            ledger.release(connection, tx_id)
        else:
            ledger.commit_transfer(connection, tx_id, target=f"{prefix}a{target}")
    if how == "reverse":
        try:
            with engine.begin() as connection:
                ledger.reverse_transfer(connection, tx_id)
        except ledger.InsufficientFunds:
            return "spent"
    return how


def test_many_at_once_do_not_block_each_other_or_lose_money(payments_engine: Engine) -> None:
    tables.create_tables(payments_engine)
    prefix = "many-"
    with payments_engine.begin() as connection:
        open_books(connection, prefix, a0=200, a1=200, a2=200, a3=200)
    with ThreadPoolExecutor(16) as pool:
        running = [
            pool.submit(transfer_or_not, payments_engine, prefix, number) for number in range(600)
        ]
        # A deadlock would come out of result() as an OperationalError.
        outcomes = {future.result(timeout=60) for future in running}
    assert {"commit", "release", "reverse", "refused"} <= outcomes
    with payments_engine.connect() as connection:
        assert audit.problems(connection, prefix=prefix) == []
        balances = audit.balances(connection, prefix=prefix)
        assert sum(balances.values()) == 0
        assert all(amount >= 0 for name, amount in balances.items() if "house" not in name)


def test_the_same_transfer_by_many_at_once_moves_money_once(payments_engine: Engine) -> None:
    tables.create_tables(payments_engine)
    prefix = "once-"
    with payments_engine.begin() as connection:
        open_books(connection, prefix, ann=100, bob=0)

    def attempt() -> bool:
        try:
            with payments_engine.begin() as connection:
                ledger.reserve(connection, f"{prefix}tx", f"{prefix}ann", 60)
                ledger.commit_transfer(connection, f"{prefix}tx", target=f"{prefix}bob")
        except ledger.LedgerError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        done = [future.result(timeout=30) for future in [pool.submit(attempt) for _ in range(8)]]
    assert sum(done) == 1
    with payments_engine.connect() as connection:
        assert audit.problems(connection, prefix=prefix) == []
        assert audit.balances(connection, prefix=prefix)[f"{prefix}bob"] == 60
