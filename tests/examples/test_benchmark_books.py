"""The books of the benchmark: every side moves the same money, and none of it twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from benchmarks import books, set_based
from benchmarks.books import HOUSE, check_books, open_books, transfers
from examples.payments import audit, ledger

COUNT = 60


@pytest.fixture
def engine(payments_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    # Few accounts, so that many transfers of a batch meet on one.
    monkeypatch.setattr(books, "ACCOUNTS", 5)
    open_books(payments_engine)
    return payments_engine


@pytest.fixture
def sql(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        yield connection


def batch(mark: str, wanted: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [(f"{mark}-{number}", data) for number, data in enumerate(wanted)]


def test_sets_move_the_same_money_as_one_by_one(engine: Engine) -> None:
    wanted = transfers(COUNT)
    with engine.connect() as connection:
        for tx_id, data in batch("one", wanted):
            books.validate(data)
            books.reserve(connection, tx_id, data)
            books.commit(connection, tx_id, data)
        alone = audit.balances(connection)
        connection.rollback()
    ids = [tx_id for tx_id, _ in batch("set", wanted)]
    with engine.begin() as connection:
        assert sorted(set_based.reserve(connection, batch("set", wanted))) == sorted(ids)
    with engine.begin() as connection:
        assert sorted(set_based.commit(connection, batch("set", wanted))) == sorted(ids)
        assert audit.balances(connection) == alone
    check_books(engine, COUNT)


def test_a_set_holds_only_what_is_covered(engine: Engine, sql: Connection) -> None:
    ledger.open_account(sql, "bench-poor", books.CURRENCY)
    ledger.deposit(sql, "poor", house=HOUSE, account="bench-poor", amount=100)
    one = {"from": "bench-poor", "to": "bench-000", "amount": 60, "currency": books.CURRENCY}
    strange = {**one, "from": "bench-000", "to": "bench-poor", "currency": "USD"}
    asked = batch("t", [one, one, {**one, "amount": 40}, strange])
    assert set_based.reserve(sql, asked) == ["t-0"]
    assert ledger.available(sql, "bench-poor") == 40


def test_a_set_that_is_committed_again_moves_nothing(engine: Engine, sql: Connection) -> None:
    asked = batch("t", transfers(3))
    set_based.reserve(sql, asked)
    assert len(set_based.commit(sql, asked)) == 3
    before = audit.balances(sql)
    assert set_based.commit(sql, asked) == []
    assert audit.balances(sql) == before


def test_a_transfer_that_is_missing_is_noticed(engine: Engine) -> None:
    check_books(engine, 0)
    with pytest.raises(AssertionError, match="0 transfers are committed, not 1"):
        check_books(engine, 1)


def test_money_that_is_still_held_is_noticed(engine: Engine) -> None:
    with engine.begin() as connection:
        set_based.reserve(connection, batch("t", transfers(1)))
    with pytest.raises(AssertionError, match="still holds"):
        check_books(engine, 0)
