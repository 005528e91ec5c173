"""Money moved set by set: the same answers and the same books as one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, create_engine, event, text

from examples.payments import audit, ledger, ledger_batches, tables
from examples.payments.ledger_batches import Wanted

#: Capital letters too: they sort before small ones in Python, and after them in many databases.
ACCOUNTS = ("Ann", "Cleo", "bob", "dora", "house", "yen")
FUNDS = {"Ann": 300, "Cleo": 100, "bob": 50}
TX_IDS = tuple(f"tx-{number}" for number in range(8))
WRONG_AMOUNTS = (0, -5, True, 1.5, "7", ledger.AMOUNT_MAX + 1)

#: What became of one item: nothing wrong, or the kind of error and its text.
Answer = tuple[str, str] | None
#: A function of this module and what it is given, the same for both ways.
Round = tuple[str, list[Any]]


@pytest.fixture(scope="module")
def books_engine(payments_database: str) -> Iterator[Engine]:
    engine = create_engine(payments_database)
    tables.create_tables(engine)
    with engine.begin() as connection:
        open_books(connection)
    yield engine
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS payments CASCADE"))
    engine.dispose()


@pytest.fixture
def books(books_engine: Engine) -> Iterator[Connection]:
    """An open transaction; undone after the test."""
    with books_engine.connect() as connection:
        yield connection
        connection.rollback()


def open_books(connection: Connection) -> None:
    for name in ACCOUNTS:
        currency = "JPY" if name == "yen" else "EUR"
        ledger.open_account(connection, name, currency, is_house=name == "house")
    for name, amount in FUNDS.items():
        ledger.deposit(connection, name, house="house", account=name, amount=amount)


# One by one and set by set, with the same signature.


def answer_of(connection: Connection, function: Callable[[Any], object], item: Any) -> Answer:
    try:
        with connection.begin_nested():
            function(item)
    except ledger.LedgerError as error:
        return type(error).__name__, str(error)
    return None


def reserve_one(connection: Connection, wanted: Wanted) -> None:
    ledger.check_accounts(connection, wanted.currency, wanted.source, wanted.target)
    ledger.reserve(connection, wanted.tx_id, wanted.source, wanted.amount)


def one_by_one(connection: Connection, kind: str, items: Sequence[Any]) -> dict[str, Answer]:
    functions: dict[str, Callable[[Any], object]] = {
        "reserve": lambda item: reserve_one(connection, item),
        "release": lambda item: ledger.release(connection, item),
        "commit": lambda item: ledger.commit_transfer(connection, item[0], target=item[1]),
        "reverse": lambda item: ledger.reverse_transfer(connection, item),
    }
    answers = {}
    for item in items:
        tx_id = item if isinstance(item, str) else item[0]
        answers[tx_id] = answer_of(connection, functions[kind], item)
    return answers


def set_by_set(connection: Connection, kind: str, items: Sequence[Any]) -> dict[str, Answer]:
    functions: dict[str, Callable[[Any], ledger_batches.Refusals]] = {
        "reserve": lambda items: ledger_batches.reserve_many(connection, items),
        "release": lambda items: ledger_batches.release_many(connection, items),
        "commit": lambda items: ledger_batches.commit_many(connection, dict(items)),
        "reverse": lambda items: ledger_batches.reverse_many(connection, items),
    }
    return {
        tx_id: None if error is None else (type(error).__name__, str(error))
        for tx_id, error in functions[kind](items).items()
    }


def contents(connection: Connection) -> list[list[tuple[Any, ...]]]:
    """All that the books say, but for times and numbers that the database gives."""
    return [
        [tuple(row) for row in connection.exec_driver_sql(query)]
        for query in (
            "SELECT id, currency, is_house, balance, held FROM payments.account ORDER BY id",
            "SELECT tx_id, account, amount, state, ended_at IS NULL"
            " FROM payments.reservation ORDER BY tx_id",
            "SELECT tx_id, account, amount, kind FROM payments.ledger_entry ORDER BY id",
        )
    ]


def wishes(sources: Sequence[str], targets: Sequence[str], currency: str, amounts: Any) -> Any:
    return st.builds(
        Wanted,
        tx_ids,
        st.sampled_from(sources),
        st.sampled_from(targets),
        st.just(currency),
        amounts,
    )


def batches(kind: str, items: Any, tx_id: Callable[[Any], str] = str, at_least: int = 0) -> Any:
    some = st.lists(items, min_size=at_least, max_size=len(TX_IDS), unique_by=tx_id)
    return st.tuples(st.just(kind), some)


tx_ids = st.sampled_from(TX_IDS)
payers = ("Ann", "Cleo", "bob", "dora")
good = wishes(payers, ("dora", "bob", "Ann"), "EUR", st.integers(1, 150))
strange = wishes((*ACCOUNTS, "nobody"), (*ACCOUNTS, "nobody"), "EUR", st.just(20))
wrong = st.one_of(
    wishes(("Ann", "yen"), ("bob", "yen"), "JPY", st.just(20)),
    wishes(("Ann", "nobody"), ("bob",), "EUR", st.sampled_from(WRONG_AMOUNTS)),
)
wanted = st.one_of(good, good, good, good, strange, wrong)
reserve = batches("reserve", wanted, lambda item: str(item.tx_id), at_least=3)
targets = st.sampled_from(("dora", "dora", "dora", "bob", "Ann", "yen", "nobody"))
commit = batches("commit", st.tuples(tx_ids, targets), lambda item: str(item[0]), at_least=3)
others = st.one_of(reserve, commit, batches("release", tx_ids), batches("reverse", tx_ids))
#: Something is held, some of it moved and spent before anything happens.
stories = st.tuples(reserve, commit, reserve, others, others, others)


@settings(
    max_examples=100,
    deadline=None,
    # Shrinking would ask the database for minutes.
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(story=stories)
def test_set_by_set_is_the_same_as_one_by_one(books_engine: Engine, story: Sequence[Round]) -> None:
    told = []
    for way in (one_by_one, set_by_set):
        with books_engine.connect() as connection:
            answers = [way(connection, kind, items) for kind, items in story]
            told.append((answers, contents(connection)))
            connection.rollback()
    assert told[1] == told[0]


def many(name: str, number: int) -> list[Wanted]:
    return [
        Wanted(f"{name}-{each}-of-{number}", "house", ACCOUNTS[each % 4], "EUR", 5)
        for each in range(number)
    ]


def statements(connection: Connection, function: Callable[..., object], given: Any) -> int:
    counted: list[str] = []

    def count(*about: Any) -> None:
        counted.append(about[2])

    event.listen(connection, "before_cursor_execute", count)
    function(connection, given)
    event.remove(connection, "before_cursor_execute", count)
    return len(counted)


def counts(connection: Connection, number: int) -> list[int]:
    """How many statements each function needs for so many transfers."""
    moved, held = many("moved", number), many("held", number)
    ids = [each.tx_id for each in moved]
    ledger_batches.reserve_many(connection, held)
    return [
        statements(connection, ledger_batches.reserve_many, moved),
        statements(connection, ledger_batches.commit_many, dict.fromkeys(ids, "bob")),
        statements(connection, ledger_batches.reverse_many, ids),
        statements(connection, ledger_batches.release_many, [each.tx_id for each in held]),
    ]


def test_a_hundred_need_as_many_statements_as_one(books: Connection) -> None:
    assert counts(books, 1) == counts(books, 100) == [5, 5, 6, 4]
    assert audit.problems(books) == []


def test_what_does_not_fit_any_more_is_refused_alone(books: Connection) -> None:
    wanted = [
        Wanted("first", "Ann", "bob", "EUR", 200),
        Wanted("too much", "Ann", "bob", "EUR", 101),
        Wanted("the rest", "Ann", "bob", "EUR", 100),
        Wanted("not a cent left", "Ann", "bob", "EUR", 1),
    ]
    answers = ledger_batches.reserve_many(books, wanted)
    assert [answers["first"], answers["the rest"]] == [None, None]
    for tx_id, amount in (("too much", 101), ("not a cent left", 1)):
        assert isinstance(answers[tx_id], ledger.InsufficientFunds)
        assert str(answers[tx_id]) == f"the account Ann does not have {amount} available"
    assert ledger.available(books, "Ann") == 0


def test_two_accounts_can_pay_each_other_in_one_batch(books: Connection) -> None:
    wanted = [Wanted("there", "Ann", "bob", "EUR", 300), Wanted("back", "bob", "Ann", "EUR", 50)]
    assert set(ledger_batches.reserve_many(books, wanted).values()) == {None}
    ledger_batches.commit_many(books, {"there": "bob", "back": "Ann"})
    assert (ledger.balance(books, "Ann"), ledger.balance(books, "bob")) == (50, 300)
    assert audit.problems(books) == []


def test_a_reversal_sees_what_those_before_it_moved(books: Connection) -> None:
    """bob got 300 and gave 50 of his own; what he has is enough for one of both reversals."""
    ledger_batches.reserve_many(
        books,
        [Wanted("large", "Ann", "bob", "EUR", 300), Wanted("small", "Cleo", "bob", "EUR", 100)],
    )
    ledger_batches.commit_many(books, {"large": "bob", "small": "bob"})
    ledger_batches.reserve_many(books, [Wanted("spent", "bob", "dora", "EUR", 120)])
    answers = ledger_batches.reverse_many(books, ["large", "small", "never"])
    assert answers["large"] is None
    assert answers["never"] is None
    assert str(answers["small"]) == "the account bob has spent what small brought"
    assert ledger.available(books, "bob") == 30


@pytest.mark.parametrize(
    ("order", "is_refused"), [(["paid", "got"], False), (["got", "paid"], True)]
)
def test_a_reversal_can_give_back_what_one_before_it_brought(
    books: Connection, order: list[str], is_refused: bool
) -> None:
    """Ann gave 300 and got 100, of which she has spent 60."""
    ledger_batches.reserve_many(
        books, [Wanted("paid", "Ann", "bob", "EUR", 300), Wanted("got", "Cleo", "Ann", "EUR", 100)]
    )
    ledger_batches.commit_many(books, {"paid": "bob", "got": "Ann"})
    ledger_batches.reserve_many(books, [Wanted("spent", "Ann", "dora", "EUR", 60)])
    answers = ledger_batches.reverse_many(books, order)
    assert (answers["got"] is not None) is is_refused
    assert answers["paid"] is None


def test_a_transfer_without_its_reservation_is_not_reversed(books: Connection) -> None:
    ledger_batches.reserve_many(books, [Wanted("tx", "Ann", "bob", "EUR", 5)])
    ledger_batches.commit_many(books, {"tx": "bob"})
    books.execute(text("DELETE FROM payments.reservation"))
    assert set_by_set(books, "reverse", ["tx"]) == one_by_one(books, "reverse", ["tx"])
    assert str(ledger_batches.reverse_many(books, ["tx"])["tx"]) == "tx has no reservation"


def test_an_empty_batch_asks_nothing(books: Connection) -> None:
    for function in (
        ledger_batches.reserve_many,
        ledger_batches.commit_many,
        ledger_batches.release_many,
        ledger_batches.reverse_many,
    ):
        assert statements(books, function, {}) == 0
