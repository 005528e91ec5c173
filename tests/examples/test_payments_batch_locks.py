"""Batches of transfers that touch the same accounts wait for each other, and never in a circle."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from examples.payments import audit, ledger, ledger_batches, tables
from examples.payments.ledger_batches import LOCK_ACCOUNTS, Wanted

#: As Python sorts them. Many a database would say Ann, bob, Cleo, dora.
NAMES = ("Ann", "Cleo", "bob", "dora")
WAIT_S = 30


@pytest.fixture(params=["libc LOCALE 'C'", "builtin BUILTIN_LOCALE 'C.UTF-8'"])
def engine(request: pytest.FixtureRequest, payments_database: str) -> Iterator[Engine]:
    """Books in a database whose own collation is "C", and in one that has another."""
    server = create_engine(payments_database, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with server.connect() as connection:
        connection.exec_driver_sql(
            f"CREATE DATABASE sorted TEMPLATE template0 LOCALE_PROVIDER {request.param}"
        )
    engine = create_engine(server.url.set(database="sorted"), pool_size=16)
    tables.create_tables(engine)
    with engine.begin() as connection:
        ledger.open_account(connection, "house", "EUR", is_house=True)
        for name in NAMES:
            ledger.open_account(connection, name, "EUR")
            ledger.deposit(connection, name, house="house", account=name, amount=1_000)
    yield engine
    engine.dispose()
    with server.connect() as connection:
        connection.exec_driver_sql("DROP DATABASE sorted WITH (FORCE)")


def test_rows_are_locked_after_they_are_sorted(engine: Engine) -> None:
    """Whatever the planner prefers: a few accounts or many, with statistics or without."""
    with engine.connect() as connection:
        assert_sorted_before_locked(connection, list(NAMES))
        connection.exec_driver_sql(
            "INSERT INTO payments.account (id, currency)"
            " SELECT 'n' || number, 'EUR' FROM generate_series(1, 20000) AS number"
        )
        connection.exec_driver_sql("ANALYZE payments.account")
        for number in (1, 100, 5_000):
            assert_sorted_before_locked(connection, [f"n{each}" for each in range(number)])
        for method in ("indexscan", "bitmapscan", "seqscan", "sort"):
            connection.exec_driver_sql(f"SET LOCAL enable_{method} = off")
            assert_sorted_before_locked(connection, [f"n{each}" for each in range(100)])
        connection.rollback()


def assert_sorted_before_locked(connection: Connection, ids: list[str]) -> None:
    explain = f"EXPLAIN (FORMAT JSON) {LOCK_ACCOUNTS}"
    [explained] = connection.exec_driver_sql(explain, {"ids": ids}).scalar_one()
    lock = explained["Plan"]
    assert lock["Node Type"] == "LockRows"
    [below] = lock["Plans"]
    # Not the database's own collation, in which Ann, bob, Cleo may be the order.
    by_sort = below["Node Type"] == "Sort" and below["Sort Key"] == ['id COLLATE "C"']
    assert by_sort or reads_in_order(connection, below), explained


def reads_in_order(connection: Connection, node: dict[str, Any]) -> bool:
    """An index gives the order by itself, if it has the same collation."""
    collation = text("SELECT datcollate, datlocprovider FROM pg_database WHERE datname = 'sorted'")
    return (
        node["Node Type"] == "Index Scan"
        and node["Index Name"] == "account_pkey"
        and node["Scan Direction"] == "Forward"
        and tuple(connection.execute(collation).one()) == ("C", "c")
    )


def test_locks_are_taken_in_the_order_in_which_python_sorts(engine: Engine) -> None:
    """While it waits for Cleo it has Ann, which comes before, and neither bob nor dora."""
    wanted = [Wanted(f"tx-{name}", name, "house", "EUR", 1) for name in reversed(NAMES)]
    with engine.connect() as holder, ThreadPoolExecutor(1) as pool:
        holder.exec_driver_sql("SELECT FROM payments.account WHERE id = 'Cleo' FOR NO KEY UPDATE")

        def reserve() -> None:
            with engine.begin() as connection:
                ledger_batches.reserve_many(connection, wanted)

        waiting = pool.submit(reserve)
        with engine.connect() as looker:
            wait_for_a_lock(looker)
            free = [name for name in NAMES if is_free(looker, name)]
        holder.rollback()
        waiting.result(timeout=WAIT_S)
    assert free == ["bob", "dora"]


def wait_for_a_lock(connection: Connection) -> None:
    blocked = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = 'sorted' AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    for _ in range(WAIT_S * 100):
        if connection.execute(blocked).scalar_one():
            return
        # The database's own pause, so that its clock and not ours decides.
        connection.exec_driver_sql("SELECT pg_sleep(0.01)")
        connection.rollback()
    raise AssertionError("nothing waits for a lock")


def is_free(connection: Connection, name: str) -> bool:
    wanted = text("SELECT FROM payments.account WHERE id = :name FOR NO KEY UPDATE NOWAIT")
    try:
        connection.execute(wanted, {"name": name})
    except OperationalError:
        return False
    finally:
        connection.rollback()
    return True


def test_batches_and_single_transfers_in_opposite_orders_do_not_deadlock(engine: Engine) -> None:
    """Every thread moves money between the same four accounts, in an order of its own."""
    threads = 4
    start = threading.Barrier(threads)

    def work(thread: int) -> None:
        rng = random.Random(thread)
        start.wait(WAIT_S)
        for turn in range(25):
            prefix = f"{thread}-{turn}"
            # A deadlock comes out of result() as an OperationalError.
            if thread == 0:
                move_one(engine, prefix, rng)
            else:
                move_many(engine, prefix, rng, backwards=thread % 2 == 0)

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work, thread) for thread in range(threads)]:
            future.result(timeout=4 * WAIT_S)
    with engine.connect() as connection:
        assert audit.problems(connection) == []
        assert sum(audit.balances(connection).values()) == 0
        states = connection.exec_driver_sql("SELECT DISTINCT state FROM payments.reservation")
        assert set(states.scalars()) == {"committed", "released", "reversed"}


def move_many(engine: Engine, prefix: str, rng: random.Random, *, backwards: bool) -> None:
    pairs = [(one, other) for one in NAMES for other in NAMES if one != other]
    wanted = [
        Wanted(f"{prefix}-{number}", *pair, "EUR", rng.randint(1, 200))
        for number, pair in enumerate(reversed(pairs) if backwards else pairs)
    ]
    with engine.begin() as connection:
        answers = ledger_batches.reserve_many(connection, wanted)
    held = [each for each in wanted if answers[each.tx_id] is None]
    rng.shuffle(held)
    released, moved = held[::3], [each for each in held if each not in held[::3]]
    with engine.begin() as connection:
        ledger_batches.release_many(connection, [each.tx_id for each in released])
    with engine.begin() as connection:
        ledger_batches.commit_many(connection, {each.tx_id: each.target for each in moved})
    with engine.begin() as connection:
        ledger_batches.reverse_many(connection, [each.tx_id for each in moved[::2]])


def move_one(engine: Engine, tx_id: str, rng: random.Random) -> None:
    source, target = rng.sample(NAMES, 2)
    try:
        with engine.begin() as connection:
            ledger.reserve(connection, tx_id, source, rng.randint(1, 200))
    except ledger.InsufficientFunds:
        return
    # A transaction of its own, as in the pipeline: each locks its accounts in order, once.
    with engine.begin() as connection:
        ledger.commit_transfer(connection, tx_id, target=target)
