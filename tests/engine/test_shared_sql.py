"""Ordinary transactional steps of a vector share one SQL transaction, if they can."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Abort, Call, Fail, Pipeline, Sleep, StepContext, failpoints
from datp_tasks.engine import guard
from datp_tasks.model.status import Status
from datp_tasks.record.effects import Effects
from datp_tasks.testing import Kit, boundaries
from datp_tasks.testing.servers import Servers
from tests.engine.guarded import GuardedHop
from tests.engine.shared_pay import (
    ODD,
    SIZE,
    Commits,
    Data,
    Pay,
    lines,
    numbers,
    raise_serialization_failure,
    share_max,
)
from tests.support.books import Books
from tests.support.eventually import eventually


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


def test_what_the_guard_has_handed_to_others_is_not_committed_here(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step hangs; those before it in the shared transaction go on elsewhere, and only there."""
    monkeypatch.setattr(guard, "STUCK_MS", 50)
    kit = Kit(datp_servers)
    books = Books(kit.connections.engine)
    hangs, may_return, may_end = (threading.Event() for _ in range(3))

    def odd(ctx: StepContext) -> None:
        is_first = not hangs.is_set()
        hangs.set()
        # When it returns, its shared transaction must not be committed: it runs again, alone.
        (may_return if is_first else may_end).wait(20)

    Pay(kit, books, odd, timeout_s=30)
    kit.lose_bells()
    tx_ids = [kit.submit("p", data) for data in numbers()]
    kit.lose_bells(False)
    fields = kit.connections.live.fields_many(tx_ids)
    pairs = [(tx, int(each["sequence"])) for tx, each in zip(tx_ids, fields, strict=True)]
    others = [tx_id for n, tx_id in enumerate(tx_ids) if n != ODD]
    hop = GuardedHop(kit)
    hop.start("t/pay", pairs)
    try:
        assert hangs.wait(20)
        eventually(hop.looks)
        # Until then its rows are locked, and other workers wait for them.
        may_return.set()

        def others_went_on() -> bool:
            hop.go_on()
            return {kit.status(tx_id).status for tx_id in others} == {Status.SUCCESS}

        eventually(others_went_on)
        assert sorted(books.lines()) == lines(ODD)
    finally:
        may_end.set()
        hop.join()
    hop.hear()
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
