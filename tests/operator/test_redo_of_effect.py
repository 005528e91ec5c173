"""`redo` of a step whose effect was committed: the effect counts, whatever comes next."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Fail, Pipeline
from datp_tasks.errors import ApprovalNeeded
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.status import Status
from datp_tasks.record.step_starts import BegunSteps
from datp_tasks.testing import Kit
from tests.support.books import Books

Data = dict[str, Any]
ANN = Actor(name="key ann1", owner="ann", role=Role.OPERATOR)
BOB = Actor(name="key bob1", owner="bob", role=Role.APPROVER)


def test_an_effect_from_before_a_loss_is_undone_when_the_cancelled_one_is_redone(
    datp: Kit,
) -> None:
    books = Books(datp.connections.engine)

    @datp.step("t/book", transactional=True)
    def book(ctx: Any, data: Data) -> Data:
        books.write(ctx.sql, ctx.tx_id, "book")
        return data

    @book.rollback
    def unbook(ctx: Any, data: Data, output: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, "unbook")

    @datp.step("t/pass")
    def go_on(ctx: Any, data: Data) -> Data:
        return data

    datp.use(Pipeline("book").step("t/book").step("t/pass").build())
    datp.crash_at("effect.after_commit")
    tx_id = datp.submit("book", {})
    datp.connections.redis.flushdb()
    datp.lose_bells()
    datp.recover()
    datp.client.cancel(tx_id)
    assert datp.status(tx_id).status is Status.IN_DOUBT
    datp.lose_bells(False)
    datp.operator.resolve(tx_id, "redo", reason="it is transactional")
    for _ in range(3):
        datp.advance(seconds=20)
        datp.run_jobs()
    assert datp.status(tx_id).status is Status.CANCELLED
    assert books.lines(tx_id) == ["book", "unbook"]


def rollback_in_doubt(kit: Kit, **declared: Any) -> str:
    """A transaction whose rollback broke in its only try, after it may have paid back."""
    tries: list[str] = []

    @kit.step("t/pay", retry={"max_attempts": 1}, **declared)
    def pay(ctx: Any, data: Data) -> Data:
        return data

    @pay.rollback
    def pay_back(ctx: Any, data: Data, output: Data) -> None:
        tries.append(ctx.tx_id)
        if len(tries) == 1:
            raise OSError("no answer")

    @kit.step("t/stop")
    def stop(ctx: Any, data: Data) -> Data:
        raise Fail("enough")

    kit.use(Pipeline("pay-back").step("t/pay").step("t/stop").build())
    summary = kit.run("pay-back", {})
    assert summary.status is Status.IN_DOUBT
    return summary.tx_id


@pytest.mark.kit(policy="rules: [{action: pipeline.use, approvals: 0}]")
def test_a_rollback_of_a_step_that_is_not_safe_is_redone_with_another_person(datp: Kit) -> None:
    tx_id = rollback_in_doubt(datp, on_crash="review")
    begun = BegunSteps(datp.connections.engine)
    marks = begun.of(tx_id)
    with pytest.raises(ApprovalNeeded) as needed:
        datp.operator.resolve(tx_id, "redo", reason="not at the bank", actor=ANN)
    number = needed.value.approval_id
    assert datp.operator.approvals.store.one(number).action == "resolve.redo-effect"
    assert datp.status(tx_id).status is Status.IN_DOUBT
    datp.operator.approvals.approve(number, BOB)
    assert datp.finish(tx_id).status is Status.FAILED
    # That the step itself had begun is not forgotten: only its rollback was decided about.
    assert len(marks) == 1
    assert begun.of(tx_id) == marks


@pytest.mark.kit(policy="rules: [{action: pipeline.use, approvals: 0}]")
def test_a_rollback_of_a_step_that_is_safe_is_redone_by_one_person(datp: Kit) -> None:
    tx_id = rollback_in_doubt(datp)
    datp.operator.resolve(tx_id, "redo", reason="it may run twice", actor=ANN)
    assert datp.finish(tx_id).status is Status.FAILED
