"""What an unexpected exception says is for operators; its client gets an error id."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Abort, Fail, Pipeline
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.notes import without_id
from tests.support.receiver import receiving

Data = dict[str, Any]
#: What must not reach a client.
HIDDEN = ("4929-1111", "SELECT", "no_such_table", "psycopg2")


def broken_sql(kit: Kit) -> None:
    @kit.step("t/sql", transactional=True, retry={"max_attempts": 1})
    def sql(ctx: Any, data: Data) -> None:
        ctx.sql.execute(text("SELECT :card FROM no_such_table"), {"card": "4929-1111"})


def test_the_client_sees_an_error_id_and_the_operator_what_postgresql_said(datp: Kit) -> None:
    broken_sql(datp)
    datp.use(Pipeline("p").step("t/sql").build())
    summary = datp.run("p", {})
    assert summary.status is Status.INTERNAL_ERROR
    assert without_id(summary.note) == "step 1 of p (t/sql): ProgrammingError (error …)"
    answer = datp.operator.why(summary.tx_id).answer
    assert "no_such_table" in answer
    # Not what the statement was given, as SQLAlchemy would list it.
    assert "'card'" not in answer
    # The id that the client was told finds the text.
    error_id = (summary.note or "").partition("error ")[2].rstrip(")")
    assert error_id in answer


def test_the_webhook_does_not_tell_more_than_the_status(datp: Kit) -> None:
    broken_sql(datp)
    datp.use(Pipeline("p").step("t/sql").build())
    with receiving() as receiver:
        datp.run("p", {}, webhook=receiver.url("/hook"))
        datp.run_job("webhook_sender")
        body = json.dumps([got.json for got in receiver.got])
    assert "ProgrammingError" in body
    assert [word for word in HIDDEN if word in body] == []


def test_while_it_is_tried_again_the_operator_sees_the_last_error(datp: Kit) -> None:
    @datp.step("t/break", retry={"max_attempts": 3, "first_s": 60, "jitter": 0})
    def broken(ctx: Any, data: Data) -> None:
        raise RuntimeError("the bank's host 10.1.2.3 is closed")

    datp.use(Pipeline("p").step("t/break").build())
    tx_id = datp.submit("p", {})
    assert datp.status(tx_id).status is Status.SLEEPING
    assert "10.1.2.3" in datp.operator.why(tx_id).answer
    assert datp.operator.replay(tx_id).faults == []


def test_what_is_parked_tells_the_operator_why(datp: Kit) -> None:
    @datp.step("t/do")
    def do(ctx: Any, data: Data) -> Data:
        return {"done": True}

    @do.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        raise OSError("the bank's host 10.1.2.3 is closed")

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> Data:
        raise Fail("no")

    datp.use(Pipeline("p").step("t/do", retry={"max_attempts": 1}).step("t/fail").build())
    summary = datp.run("p", {})
    assert summary.status is Status.IN_DOUBT
    assert "10.1.2.3" not in (summary.note or "")
    assert "10.1.2.3" in datp.operator.why(summary.tx_id).answer
    assert datp.operator.replay(summary.tx_id).faults == []


@pytest.mark.parametrize("kind", ["fail", "abort"])
def test_what_a_step_says_on_purpose_is_told_as_it_is(datp: Kit, kind: str) -> None:
    @datp.step("t/no")
    def no(ctx: Any, data: Data) -> None:
        raise (Fail if kind == "fail" else Abort)("not enough money")

    datp.use(Pipeline("p").step("t/no").build())
    assert datp.run("p", {}).note == "not enough money"


def test_one_who_sees_no_payloads_is_told_the_error_id_and_not_the_text(datp: Kit) -> None:
    @datp.step("t/break", retry={"max_attempts": 2, "first_s": 60, "jitter": 0})
    def broken(ctx: Any, data: Data) -> None:
        raise RuntimeError("card 4929-1111 is closed")

    datp.use(Pipeline("p").step("t/break").build())
    tx_id = datp.submit("p", {})
    viewer, operator = (Actor(name="key 1", role=role) for role in (Role.VIEWER, Role.OPERATOR))
    for status in (Status.SLEEPING, Status.INTERNAL_ERROR):
        assert datp.status(tx_id).status is status
        told = datp.operator.why(tx_id, actor=viewer).answer
        assert "4929-1111" not in told and "RuntimeError (error " in told
        assert "4929-1111" in datp.operator.why(tx_id, actor=operator).answer
        datp.advance(seconds=120)
