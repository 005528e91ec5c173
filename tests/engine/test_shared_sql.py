"""Ordinary transactional steps of a vector share one SQL transaction, if they can."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Abort, Call, Fail, Pipeline, Sleep, StepContext, failpoints
from datp_tasks.archive.effects import Effects
from datp_tasks.engine.sql_steps import SqlSteps
from datp_tasks.errors import StepError
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit, boundaries
from datp_tasks.testing.servers import Servers
from tests.engine.books import Books
from tests.engine.eventually import eventually
from tests.engine.guarded import GuardedHop
from tests.engine.locks import LOCK, Deadlock, held_lock

Data = dict[str, Any]
#: What a step does beside writing its line.
Deed = Callable[[StepContext], Any]

SIZE = 5
ODD = 2


def numbers(count: int = SIZE) -> list[Data]:
    return [{"n": n} for n in range(count)]


def lines(*left_out: int) -> list[str]:
    return [f"pay {n}" for n in range(SIZE) if n not in left_out]


class Pay:
    """A step that writes a line; the one with the odd number does something beside it."""

    def __init__(
        self, kit: Kit, books: Books, odd: Deed = lambda ctx: None, **options: Any
    ) -> None:
        self.calls: list[int] = []
        self._books = books
        self._odd = odd
        declared = kit.step(
            "t/pay", transactional=True, **{"retry": {"max_attempts": 1}, **options}
        )
        self.declared = declared(self.step)
        kit.use(Pipeline("p").step("t/pay").build())

    def step(self, ctx: StepContext, data: Data) -> Any:
        self.calls.append(data["n"])
        self._books.write(ctx.sql, ctx.tx_id, f"pay {data['n']}")
        said = self._odd(ctx) if data["n"] == ODD else None
        return {"paid": data["n"]} if said is None else said


class Commits:
    """Counts the commits and rollbacks of steps while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Commits:
        failpoints.watch(self._passed)
        return self

    def __exit__(self, *_: object) -> None:
        failpoints.disarm_all()

    def _passed(self, name: str) -> None:
        self.count += name == "effect.after_commit"


def raise_serialization_failure(ctx: StepContext) -> None:
    ctx.sql.execute(text("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$"))


def share_max(kit: Kit) -> float | None:
    sql_steps: SqlSteps = vars(vars(kit.process.worker)["_executor"])["_sql_steps"]
    found: dict[str, float] = vars(sql_steps)["_share_max"]
    return found.get("t/pay")


def test_a_vector_of_transactional_steps_is_one_commit(datp: Kit, books: Books) -> None:
    pay = Pay(datp, books)
    with Commits() as commits:
        ends = datp.run_together("p", numbers(30))
    assert commits.count == 1
    assert [end.output for end in ends] == [{"paid": n} for n in range(30)]
    assert books.lines() == [f"pay {n}" for n in range(30)]
    assert pay.calls == [*range(30)]


def test_one_statement_holds_all_rows_and_one_records_all_effects(
    datp: Kit, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for name in ("hold", "record"):
        real = getattr(Effects, name)

        def count(effects: Effects, *args: Any, name: str = name, real: Any = real) -> None:
            made.append(name)
            real(effects, *args)

        monkeypatch.setattr(Effects, name, count)
    Pay(datp, books)
    datp.run_together("p", numbers(20))
    assert made == ["hold", "record"]


@pytest.mark.parametrize("how", ["fail", "abort", "break", "sql", "sleep", "call", "wrong", "none"])
def test_one_that_has_no_effect_is_undone_and_its_neighbours_commit(
    datp: Kit, books: Books, how: str
) -> None:
    def odd(ctx: StepContext) -> Any:
        match how:
            case "fail":
                raise Fail("no")
            case "abort":
                raise Abort("no")
            case "break":
                raise RuntimeError("no")
            case "sql":
                ctx.sql.execute(text("SELECT 1 / 0"))
            case "sleep":
                return Sleep(60) if ctx.sleeps == 0 else None
            case "call":
                return Call("child")
        return [1] if how == "wrong" else None

    datp.use(Pipeline("child").step("util/fixed-reply", params={"output": {"child": 1}}).build())
    pay = Pay(datp, books, odd)
    with Commits() as commits:
        tx_ids = datp.submit_together("p", numbers())
    assert commits.count == 1
    assert pay.calls == [*range(SIZE)]
    assert books.lines() == (lines() if how == "none" else lines(ODD))
    ends = [datp.finish(tx_id).status for tx_id in tx_ids]
    by_how = {"fail": Status.FAILED, "abort": Status.ABORTED}
    broken = {"break", "sql", "wrong"}
    odd_end = Status.INTERNAL_ERROR if how in broken else by_how.get(how, Status.SUCCESS)
    assert ends == [odd_end if n == ODD else Status.SUCCESS for n in range(SIZE)]


def test_a_statement_that_failed_unnoticed_breaks_its_step_alone(datp: Kit, books: Books) -> None:
    def odd(ctx: StepContext) -> None:
        with pytest.raises(Exception, match="division by zero"):
            ctx.sql.execute(text("SELECT 1 / 0"))

    Pay(datp, books, odd)
    with Commits() as commits:
        ends = datp.run_together("p", numbers())
    assert commits.count == 1
    assert "a statement of the step failed, and the step went on" in (ends[ODD].note or "")
    assert books.lines() == lines(ODD)


def test_savepoints_of_a_step_are_its_own(datp: Kit, books: Books) -> None:
    def odd(ctx: StepContext) -> None:
        with suppress(ZeroDivisionError), ctx.sql.begin_nested():
            books.write(ctx.sql, ctx.tx_id, "undone by the step")
            raise ZeroDivisionError
        ctx.sql.begin_nested()
        books.write(ctx.sql, ctx.tx_id, "left open")

    Pay(datp, books, odd)
    with Commits() as commits:
        ends = datp.run_together("p", numbers())
    assert commits.count == 1
    assert {end.status for end in ends} == {Status.SUCCESS}
    assert books.lines() == ["pay 0", "pay 1", "pay 2", "left open", "pay 3", "pay 4"]


# What cannot share.


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
    datp: Kit, books: Books
) -> None:
    pay = Pay(datp, books)
    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in numbers()]
    datp.lose_bells(False)
    with datp.connections.engine.connect() as holder:
        hold = "SELECT 1 FROM tx_summary WHERE tx_id = :tx_id FOR UPDATE"
        holder.execute(text(hold), {"tx_id": tx_ids[-1]})
        failpoints.arm("effect.after_commit", holder.rollback, nth=SIZE - 1)
        datp.ring_together(tx_ids)
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
    assert ends[ODD].progress == {"stage": "before it hangs"}
    # It is known what became of it, so only its neighbours run again.
    assert pay.calls == [0, 1, 2, 0, 1, 3, 4]
    assert commits.count == SIZE - 1
    assert books.lines() == lines(ODD)


def with_statement(statement: str) -> Deed:
    def deed(ctx: StepContext) -> None:
        ctx.sql.exec_driver_sql(statement)

    return deed


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
    ("deed", "words"),
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
    datp: Kit, books: Books, caplog: pytest.LogCaptureFixture, deed: Deed, words: str
) -> None:
    pay = Pay(datp, books, deed)
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
    assert "test_deferred" in (ends[ODD].note or "")
    assert books.lines() == lines(ODD)
    with datp.connections.engine.begin() as sql:
        sql.execute(text("DROP TABLE test_deferred"))


# Exactly once.


@pytest.mark.parametrize(
    "point", ["effect.before_commit", "effect.after_commit", "hop.after_step", "hop.before_final"]
)
def test_wherever_it_crashes_each_effect_happens_once(datp: Kit, books: Books, point: str) -> None:
    Pay(datp, books)
    datp.crash_at(point)
    tx_ids = datp.submit_together("p", numbers())
    assert len(books.lines()) == (0 if point == "effect.before_commit" else SIZE)
    datp.recover()
    assert [datp.status(tx_id).output for tx_id in tx_ids] == [{"paid": n} for n in range(SIZE)]
    assert sorted(books.lines()) == lines()


@pytest.mark.parametrize("nth", range(1, SIZE + 1))
def test_a_crash_inside_any_of_the_steps_undoes_all_that_share(
    datp: Kit, books: Books, nth: int
) -> None:
    Pay(datp, books)
    with boundaries.installed():
        datp.crash_at("effect:t/pay:after", nth=nth)
        tx_ids = datp.submit_together("p", numbers())
        assert books.lines() == []
        datp.recover()
    assert {datp.status(tx_id).status for tx_id in tx_ids} == {Status.SUCCESS}
    assert sorted(books.lines()) == lines()


@pytest.mark.parametrize("side", ["before", "after"])
def test_postgresql_lost_at_the_commit_is_asked_what_became_of_it(
    datp: Kit, books: Books, side: str
) -> None:
    pay = Pay(datp, books)
    with boundaries.installed():
        failpoints.arm(f"commit:effects.open:{side}", "raise")
        ends = datp.run_together("p", numbers())
    assert [end.output for end in ends] == [{"paid": n} for n in range(SIZE)]
    assert sorted(books.lines()) == lines()
    assert len(pay.calls) == (SIZE if side == "after" else 2 * SIZE)


def test_effects_of_an_earlier_try_are_not_made_again(datp: Kit, books: Books) -> None:
    pay = Pay(datp, books)
    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in numbers()]
    datp.lose_bells(False)
    datp.crash_at("effect.after_commit")
    datp.ring_together(tx_ids[:3])
    datp.lose_bells()
    datp.recover()
    datp.lose_bells(False)
    datp.ring_together(tx_ids)
    assert pay.calls == [*range(SIZE)]
    assert {datp.status(tx_id).status for tx_id in tx_ids} == {Status.SUCCESS}
    assert books.lines() == lines()


def test_one_under_a_newer_fence_has_no_effect_and_its_neighbours_commit(
    datp: Kit, books: Books
) -> None:
    pay = Pay(datp, books)
    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in numbers()]
    datp.lose_bells(False)

    def take_over() -> None:
        raised = "UPDATE tx_summary SET fence = fence + 1000000000000000 WHERE tx_id = :tx_id"
        with datp.connections.engine.begin() as sql:
            sql.execute(text(raised), {"tx_id": tx_ids[ODD]})

    failpoints.arm("hop.after_claim", take_over)
    datp.ring_together(tx_ids)
    assert ODD not in pay.calls
    assert books.lines() == lines(ODD)
    assert [datp.status(tx_id).status is Status.SUCCESS for tx_id in tx_ids] == [
        n != ODD for n in range(SIZE)
    ]


def test_an_effect_that_another_worker_records_meanwhile_is_taken_from_it(
    datp: Kit, books: Books
) -> None:
    def odd(ctx: StepContext) -> None:
        if pay.calls.count(ODD) == 1:
            with datp.connections.engine.begin() as sql:
                sql.execute(
                    text(
                        "INSERT INTO step_effect (tx_id, step_key, fence, output, created_at) "
                        "VALUES (:tx_id, :key, 1, '{\"paid\": -1}', now())"
                    ),
                    {"tx_id": ctx.tx_id, "key": ctx.idempotency_key},
                )

    pay = Pay(datp, books, odd)
    ends = datp.run_together("p", numbers())
    assert ends[ODD].output == {"paid": -1}
    assert {end.status for end in ends} == {Status.SUCCESS}
    assert books.lines() == lines(ODD)


def test_what_the_guard_has_handed_to_others_is_not_committed_here(datp_servers: Servers) -> None:
    """One step hangs; those before it in the shared transaction go on elsewhere, and only there."""
    kit = Kit(datp_servers, vector_stuck_ms=50)
    books = Books(kit.connections.engine)
    hangs, may_end = threading.Event(), threading.Event()

    def odd(ctx: StepContext) -> None:
        hangs.set()
        may_end.wait(20)

    Pay(kit, books, odd, timeout_s=30)
    kit.lose_bells()
    tx_ids = [kit.submit("p", data) for data in numbers()]
    kit.lose_bells(False)
    fields = kit.connections.live.fields_many(tx_ids)
    pairs = [(tx, int(each["sequence"])) for tx, each in zip(tx_ids, fields, strict=True)]
    others = [tx_id for n, tx_id in enumerate(tx_ids) if n != ODD]
    hop = GuardedHop(kit, "t/pay", pairs)
    hop.start()
    try:
        assert hangs.wait(20)

        def others_went_on() -> bool:
            hop.look()
            return {kit.status(tx_id).status for tx_id in others} == {Status.SUCCESS}

        eventually(others_went_on)
        assert sorted(books.lines()) == lines(ODD)
    finally:
        may_end.set()
        hop.join()
    assert kit.status(tx_ids[ODD]).status is Status.SUCCESS
    assert sorted(books.lines()) == lines()
    kit.close()


# Rollback functions.


def test_rollback_functions_share_too_and_one_that_breaks_is_tried_again_alone(
    datp: Kit, books: Books
) -> None:
    pay = Pay(datp, books, retry={"max_attempts": 3})

    @pay.declared.rollback
    def pay_back(ctx: StepContext, data: Data, output: Data) -> None:
        assert output == {"paid": data["n"]}
        books.write(ctx.sql, ctx.tx_id, f"back {data['n']} {ctx.attempt}")
        if data["n"] == ODD and ctx.attempt == 1:
            raise OSError

    refuse = {"fail": True}
    datp.use(Pipeline("p").step("t/pay").step("util/fixed-reply", params=refuse).build())
    with Commits() as commits:
        tx_ids = datp.submit_together("p", numbers())
    assert commits.count == 2
    assert {datp.finish(tx_id).status for tx_id in tx_ids} == {Status.FAILED}
    back = [f"back {n} 1" for n in range(SIZE) if n != ODD]
    assert books.lines() == [*lines(), *back, f"back {ODD} 2"]


@pytest.mark.parametrize("point", ["effect.before_commit", "effect.after_commit"])
def test_wherever_a_rollback_crashes_it_is_undone_once(datp: Kit, books: Books, point: str) -> None:
    pay = Pay(datp, books)

    @pay.declared.rollback
    def pay_back(ctx: StepContext, data: Data, output: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, f"back {data['n']}")

    refuse = {"fail": True}
    datp.use(Pipeline("p").step("t/pay").step("util/fixed-reply", params=refuse).build())
    datp.crash_at(point, nth=2)
    tx_ids = datp.submit_together("p", numbers())
    datp.recover()
    assert {datp.status(tx_id).status for tx_id in tx_ids} == {Status.FAILED}
    assert sorted(books.lines()) == sorted([*lines(), *(f"back {n}" for n in range(SIZE))])


# How many share.


def test_after_a_conflict_fewer_share_and_slowly_more_again(datp: Kit, books: Books) -> None:
    def odd(ctx: StepContext) -> None:
        if pay.calls.count(ODD) == 1:
            raise_serialization_failure(ctx)

    pay = Pay(datp, books, odd)
    datp.run_together("p", numbers())
    assert share_max(datp) == SIZE // 2
    datp.run_together("p", numbers(8))
    assert (share_max(datp) or 0) > SIZE // 2


def test_a_share_of_one_does_not_stay_so_for_ever(datp: Kit, books: Books) -> None:
    def odd(ctx: StepContext) -> None:
        if pay.calls.count(ODD) == 1:
            raise_serialization_failure(ctx)

    pay = Pay(datp, books, odd)
    datp.run_together("p", [{"n": ODD}, {"n": 0}])
    assert share_max(datp) == 1
    for _ in range(4):
        datp.run_together("p", numbers())
    assert (share_max(datp) or 0) >= 2
    with Commits() as commits:
        datp.run_together("p", numbers())
    assert commits.count < SIZE
