"""Transactional steps: their effects and their output are one commit."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Abort, Call, Fail, Pipeline, Sleep
from datp_tasks.errors import StepError
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.books import Books

Data = dict[str, Any]


def recorded(kit: Kit, tx_id: str) -> dict[str, Any]:
    query = "SELECT step_key, output FROM step_effect WHERE tx_id = :tx_id"
    with kit.connections.engine.connect() as sql:
        return {row.step_key: row.output for row in sql.execute(text(query), {"tx_id": tx_id})}


def test_effects_and_output_are_committed_together(datp: Kit, books: Books) -> None:
    @datp.step("t/pay", transactional=True)
    def pay(ctx: Any, data: Data) -> Data:
        books.write(ctx.sql, ctx.tx_id, "pay")
        # Nobody else sees it before the commit.
        assert books.lines() == []
        return {"paid": data["n"]}

    datp.use(Pipeline("p").step("t/pay").build())
    summary = datp.run("p", {"n": 2**60})
    assert summary.output == {"paid": 2**60}
    assert books.lines(summary.tx_id) == ["pay"]
    assert recorded(datp, summary.tx_id) == {f"{summary.tx_id}:0": '{"paid":1152921504606846976}'}


def test_none_is_recorded_too(datp: Kit, books: Books) -> None:
    @datp.step("t/pay", transactional=True)
    def pay(ctx: Any, data: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, "pay")

    datp.use(Pipeline("p").step("t/pay").build())
    summary = datp.run("p", {"n": 1})
    assert summary.output == {"n": 1}
    assert recorded(datp, summary.tx_id) == {f"{summary.tx_id}:0": None}


@pytest.mark.parametrize("how", ["fail", "abort", "break", "sleep", "call", "wrong"])
def test_everything_but_an_output_leaves_no_effect(datp: Kit, books: Books, how: str) -> None:
    @datp.step("t/pay", transactional=True, retry={"max_attempts": 1})
    def pay(ctx: Any, data: Data) -> Any:
        if ctx.sleeps:
            return None
        books.write(ctx.sql, ctx.tx_id, how)
        match how:
            case "fail":
                raise Fail("no")
            case "abort":
                raise Abort("no")
            case "break":
                raise RuntimeError
            case "sleep":
                return Sleep(seconds=60)
            case "call":
                return Call("child")
        return [1]

    datp.use(
        Pipeline("child").step("util/fixed-reply", params={"output": {"child": 1}}).build(),
        Pipeline("p").step("t/pay").build(),
    )
    tx_id = datp.submit("p", {})
    assert books.lines() == []
    assert recorded(datp, tx_id) == {}
    ends = {
        "fail": Status.FAILED,
        "abort": Status.ABORTED,
        "break": Status.INTERNAL_ERROR,
        "sleep": Status.SUCCESS,
        "call": Status.SUCCESS,
        "wrong": Status.INTERNAL_ERROR,
    }
    assert datp.finish(tx_id).status is ends[how]
    assert books.lines() == []


def test_an_effect_after_tries_that_broke_happens_once(datp: Kit, books: Books) -> None:
    @datp.step("t/pay", transactional=True, retry={"max_attempts": 5})
    def pay(ctx: Any, data: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, f"try {ctx.attempt}")
        if ctx.attempt < 4:
            raise OSError

    datp.use(Pipeline("p").step("t/pay").build())
    summary = datp.run("p", {})
    assert summary.status is Status.SUCCESS
    assert books.lines() == ["try 4"]


def test_an_error_of_sql_is_an_ordinary_error_and_can_be_tried_again(
    datp: Kit, books: Books
) -> None:
    @datp.step("t/pay", transactional=True, retry={"max_attempts": 2})
    def pay(ctx: Any, data: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, "pay")
        if ctx.attempt == 1:
            ctx.sql.execute(text("SELECT 1 / 0"))

    datp.use(Pipeline("p").step("t/pay").build())
    assert datp.run("p", {}).status is Status.SUCCESS
    assert books.lines() == ["pay"]


def test_a_connection_lost_in_the_middle_is_tried_again_with_a_new_one(
    datp: Kit, books: Books
) -> None:
    calls: list[int] = []

    @datp.step("t/pay", transactional=True, retry={"max_attempts": 1})
    def pay(ctx: Any, data: Data) -> None:
        calls.append(1)
        if len(calls) == 1:
            pid = ctx.sql.execute(text("SELECT pg_backend_pid()")).scalar()
            with datp.connections.engine.begin() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        books.write(ctx.sql, ctx.tx_id, "pay")

    datp.use(Pipeline("p").step("t/pay").build())
    assert datp.run("p", {}).status is Status.SUCCESS
    assert books.lines() == ["pay"]
    assert len(calls) == 2


def test_a_rollback_of_a_transactional_step_is_one_too(datp: Kit, books: Books) -> None:
    @datp.step("t/pay", transactional=True)
    def pay(ctx: Any, data: Data) -> Data:
        books.write(ctx.sql, ctx.tx_id, "pay")
        return {"paid": True}

    @pay.rollback
    def pay_back(ctx: Any, data: Data, output: Data) -> None:
        assert output == {"paid": True}
        books.write(ctx.sql, ctx.tx_id, f"back {ctx.attempt}")
        if ctx.attempt < 3:
            raise OSError

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no")

    datp.use(Pipeline("p").step("t/pay").step("t/fail").build())
    summary = datp.run("p", {})
    assert summary.status is Status.FAILED
    assert books.lines() == ["pay", "back 3"]
    assert recorded(datp, summary.tx_id).keys() == {
        f"{summary.tx_id}:0",
        f"{summary.tx_id}:0:undo",
    }


def test_the_same_step_type_twice_in_a_pipeline_has_two_effects(datp: Kit, books: Books) -> None:
    @datp.step("t/pay", transactional=True)
    def pay(ctx: Any, data: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, ctx.idempotency_key.partition(":")[2])

    @datp.step("t/call")
    def call(ctx: Any, data: Data) -> Call:
        return Call("child")

    datp.use(
        Pipeline("child").step("t/pay").build(),
        Pipeline("p").step("t/pay").step("t/call").step("t/call").step("t/pay").build(),
    )
    assert datp.run("p", {}).status is Status.SUCCESS
    assert books.lines() == ["0", "1.0", "2.0", "3"]


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_step_that_commits_by_itself_is_refused_and_has_no_effect(
    datp: Kit, books: Books, goes_on: bool
) -> None:
    @datp.step("t/pay", transactional=True, retry={"max_attempts": 1})
    def pay(ctx: Any, data: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, "pay")
        try:
            ctx.sql.commit()
        except StepError:
            if not goes_on:
                raise

    datp.use(Pipeline("p").step("t/pay").build())
    summary = datp.run("p", {"n": 1})
    assert summary.status is Status.INTERNAL_ERROR
    assert "do not commit ctx.sql" in (summary.note or "")
    assert books.lines() == []
    assert recorded(datp, summary.tx_id) == {}
