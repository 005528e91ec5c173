"""What cannot share a SQL transaction is undone as a whole and runs again one at a time."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import StepContext, failpoints
from datp_tasks.errors import StepError
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.engine.shared_pay import (
    ODD,
    SIZE,
    Commits,
    OddStep,
    Pay,
    lines,
    numbers,
    raise_serialization_failure,
)
from tests.support.books import Books, reports
from tests.support.locks import LOCK, Deadlock, held_lock


def assert_all_alone_and_once(kit: Kit, books: Books, pay: Pay, *left_out: int) -> None:
    """Everything ran again one at a time, and each effect is there once."""
    with Commits() as commits:
        ends = kit.run_together("p", numbers())
    assert commits.count == SIZE - len(left_out)
    assert [end.status is Status.SUCCESS for end in ends] == [
        n not in left_out for n in range(SIZE)
    ]
    assert sorted(books.lines()) == lines(*left_out)
    # The shared try came as far as the odd one; then each alone.
    assert pay.calls[: ODD + 1] == [*range(ODD + 1)]
    assert set(pay.calls[ODD + 1 :]) == {*range(SIZE)}


def test_a_deadlock_lets_each_run_alone(datp: Kit, books: Books) -> None:
    deadlock = Deadlock(datp.connections.engine)

    def odd(ctx: StepContext) -> None:
        if pay.calls.count(ODD) == 1:
            deadlock.run_into(ctx.sql)

    pay = Pay(datp, books, odd)
    assert_all_alone_and_once(datp, books, pay)
    deadlock.join()


def test_a_serialization_failure_lets_each_run_alone_and_alone_again(
    datp: Kit, books: Books
) -> None:
    def odd(ctx: StepContext) -> None:
        if pay.calls.count(ODD) <= 2:
            raise_serialization_failure(ctx)

    pay = Pay(datp, books, odd)
    assert_all_alone_and_once(datp, books, pay)
    assert pay.calls.count(ODD) == 3


def test_a_lock_that_is_held_lets_each_run_alone(datp: Kit, books: Books) -> None:
    def odd(ctx: StepContext) -> None:
        if pay.calls.count(ODD) == 2:
            # Alone, it would wait for as long as a statement may take.
            holder.rollback()
        ctx.sql.execute(LOCK, {"name": 7})

    pay = Pay(datp, books, odd)
    with held_lock(datp.connections.engine, 7) as holder:
        assert_all_alone_and_once(datp, books, pay)


def test_a_statement_timeout_lets_each_run_alone(datp_servers: Servers) -> None:
    kit = Kit(datp_servers, sql_statement_timeout_s=0.3)
    books = Books(kit.connections.engine)

    def odd(ctx: StepContext) -> None:
        ctx.sql.execute(text("SELECT pg_sleep(5)"))

    pay = Pay(kit, books, odd)
    assert_all_alone_and_once(kit, books, pay, ODD)
    kit.close()


def test_a_locked_row_of_one_transaction_does_not_hold_up_the_others_for_long(
    datp: Kit, books: Books, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pay = Pay(datp, books)
    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in numbers()]
    datp.lose_bells(False)
    with datp.connections.engine.connect() as holder:
        hold = "SELECT 1 FROM tx_summary WHERE tx_id = :tx_id FOR UPDATE"
        holder.execute(text(hold), {"tx_id": tx_ids[-1]})
        failpoints.arm("effect.after_commit", holder.rollback, nth=SIZE - 1)
        datp.ring_together(tx_ids)
    assert "canceling statement due to lock timeout" in caplog.text
    assert pay.calls == [*range(SIZE)]
    assert [datp.status(tx_id).status for tx_id in tx_ids] == [Status.SUCCESS] * SIZE


def test_a_lost_connection_lets_each_run_alone(datp: Kit, books: Books) -> None:
    def odd(ctx: StepContext) -> None:
        if pay.calls.count(ODD) == 1:
            pid = ctx.sql.execute(text("SELECT pg_backend_pid()")).scalar()
            with datp.connections.engine.begin() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            ctx.sql.execute(text("SELECT 1"))

    pay = Pay(datp, books, odd)
    assert_all_alone_and_once(datp, books, pay)


def test_a_step_over_its_time_limit_breaks_alone(datp: Kit, books: Books) -> None:
    never = threading.Event()

    def odd(ctx: StepContext) -> None:
        ctx.progress({"stage": "before it hangs"})
        never.wait(30)

    pay = Pay(datp, books, odd, timeout_s=0.3)
    with Commits() as commits:
        ends = datp.run_together("p", numbers())
    assert "ran longer than 0.3 s" in (ends[ODD].note or "")
    assert reports(datp.connections.engine, ends[ODD].tx_id) == ['{"stage":"before it hangs"}']
    # It is known what became of it, so only its neighbours run again.
    assert pay.calls == [0, 1, 2, 0, 1, 3, 4]
    assert commits.count == SIZE - 1
    assert books.lines() == lines(ODD)


def with_statement(statement: str) -> OddStep:
    def odd_step(ctx: StepContext) -> None:
        ctx.sql.exec_driver_sql(statement)

    return odd_step


def commit(ctx: StepContext) -> None:
    ctx.sql.commit()


def commit_and_go_on(ctx: StepContext) -> None:
    with pytest.raises(StepError):
        ctx.sql.commit()


def roll_back(ctx: StepContext) -> None:
    ctx.sql.rollback()


def commit_by_the_driver(ctx: StepContext) -> None:
    driver: Any = ctx.sql.connection
    driver.commit()


def close(ctx: StepContext) -> None:
    ctx.sql.close()


@pytest.mark.parametrize(
    ("odd_step", "words"),
    [
        (commit, "do not commit"),
        (commit_and_go_on, "do not commit"),
        (commit_by_the_driver, "do not commit"),
        (with_statement("COMMIT"), "do not commit"),
        (with_statement("SELECT 1; end transaction"), "do not commit"),
        (with_statement("-- ready\nCOMMIT AND CHAIN"), "do not commit"),
        (roll_back, "do not roll back"),
        (with_statement("ROLLBACK"), "do not roll back"),
        (with_statement("abort work"), "do not roll back"),
        (close, "do not"),
        (with_statement("RELEASE SAVEPOINT datp_item"), ""),
    ],
)
def test_poison_breaks_alone_and_neighbours_take_effect_once(
    datp: Kit, books: Books, caplog: pytest.LogCaptureFixture, odd_step: OddStep, words: str
) -> None:
    pay = Pay(datp, books, odd_step)
    caplog.set_level(logging.INFO)
    assert_all_alone_and_once(datp, books, pay, ODD)
    assert "5 steps t/pay run one at a time" in caplog.text
    assert words in caplog.text


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'COMMIT; ROLLBACK'",
        "SELECT CASE WHEN true THEN 1 END",
        "DO $$ BEGIN PERFORM 1; END $$",
        'SELECT 1 AS "x; commit" -- ; commit',
        "SELECT E'it\\'s; COMMIT;' /* ; ROLLBACK */",
        "SAVEPOINT mine; ROLLBACK TO SAVEPOINT mine",
        "SAVEPOINT mine; rollback work to mine; release savepoint mine",
        "PREPARE mine AS SELECT 1",
    ],
)
def test_statements_that_only_look_like_an_end_are_let_through(
    datp: Kit, books: Books, statement: str
) -> None:
    Pay(datp, books, with_statement(statement))
    with Commits() as commits:
        ends = datp.run_together("p", numbers())
    assert {end.status for end in ends} == {Status.SUCCESS}
    assert commits.count == 1


def test_a_deferred_constraint_fails_only_the_one_that_violates_it(datp: Kit, books: Books) -> None:
    with datp.connections.engine.begin() as sql:
        sql.execute(text("DROP TABLE IF EXISTS test_deferred"))
        sql.execute(text("CREATE TABLE test_deferred (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)"))
        sql.execute(text("INSERT INTO test_deferred VALUES (1)"))

    def odd(ctx: StepContext) -> None:
        ctx.sql.execute(text("INSERT INTO test_deferred VALUES (1)"))

    Pay(datp, books, odd)
    ends = datp.run_together("p", numbers())
    assert [end.status is Status.SUCCESS for end in ends] == [n != ODD for n in range(SIZE)]
    assert "IntegrityError (error " in (ends[ODD].note or "")
    assert books.lines() == lines(ODD)
    with datp.connections.engine.begin() as sql:
        sql.execute(text("DROP TABLE test_deferred"))
