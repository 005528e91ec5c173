"""The point of no return: past it, a transaction cannot expire or be cancelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from datp_tasks import Batch, Fail, Pipeline, Sleep
from datp_tasks.errors import NoReturn, PipelineInvalid
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.status import Status
from datp_tasks.model.transfer_state import transfer_state
from datp_tasks.pipelines.files import load_definitions
from datp_tasks.record.timeouts import Timeouts
from datp_tasks.testing import Kit
from tests.timeouts.history import alerts, history, watched

Data = dict[str, Any]

MONEY = "DROP TABLE IF EXISTS test_paid; CREATE TABLE test_paid (tx text PRIMARY KEY)"
PAY = "INSERT INTO test_paid VALUES (:tx)"
PAY_MANY = "INSERT INTO test_paid SELECT unnest(cast(:tx AS text[]))"


def paid(kit: Kit) -> list[str]:
    with kit.connections.engine.connect() as sql:
        return list(sql.execute(text("SELECT tx FROM test_paid")).scalars())


def declare_plain(datp: Kit, said: list[str]) -> None:
    @datp.step("t/hold")
    def hold(ctx: Any, data: Data) -> None:
        said.append("hold")

    @hold.rollback
    def release(ctx: Any, data: Data, output: Data) -> None:
        said.append("release")

    @datp.step("t/send", retry={"max_attempts": 2, "first_s": 1})
    def send(ctx: Any, data: Data) -> None:
        said.append("send")
        if data.get("fail"):
            raise Fail("the payee says no")
        if data.get("broken"):
            raise ConnectionError("no answer")


def declare_sql(datp: Kit) -> None:
    @datp.step("t/sql", transactional=True)
    def pay(ctx: Any, data: Data) -> None:
        ctx.sql.execute(text(PAY), {"tx": ctx.tx_id})

    @pay.rollback
    def pay_back(ctx: Any, data: Data, output: Data) -> None:
        ctx.sql.execute(text("DELETE FROM test_paid WHERE tx = :tx"), {"tx": ctx.tx_id})

    @datp.step("t/vector", transactional=True, vector=True)
    def pay_many(batch: Batch) -> None:
        batch.sql.execute(text(PAY_MANY), {"tx": [item.tx_id for item in batch]})
        for item in batch:
            item.done()


def declare_saying(datp: Kit, said: list[str]) -> None:
    @datp.step("t/says")
    def says(ctx: Any, data: Data) -> None:
        if data.get("late"):
            datp.clock.advance(seconds=60)
        if data.get("cancelled"):
            datp.client.cancel(ctx.tx_id, "changed my mind")
        ctx.commit_to_finish()
        said.append("says")

    @datp.step("t/says-sql", transactional=True)
    def says_sql(ctx: Any, data: Data) -> None:
        ctx.commit_to_finish()
        ctx.sql.execute(text(PAY), {"tx": ctx.tx_id})
        if data.get("fail"):
            raise Fail("no")

    @datp.step("t/says-vector", transactional=True, vector=True)
    def says_vector(batch: Batch) -> None:
        for item in batch:
            item.commit_to_finish()
            item.done()


def declare_sleepers(datp: Kit, said: list[str]) -> None:
    @datp.step("t/nap")
    def nap(ctx: Any, data: Data) -> Sleep | None:
        return Sleep(seconds=3_600) if ctx.sleeps == 0 else None

    @datp.step("t/ask")
    def ask(ctx: Any, data: Data) -> Sleep | None:
        said.append("ask")
        answer = ctx.switch("answer")
        if answer is None:
            return Sleep(switch="answer", seconds=3_600)
        if not answer:
            raise Fail("the other scheme says no")
        return None


def declare_pipelines(datp: Kit) -> None:
    for name in ("send", "sql", "vector"):
        pipeline = Pipeline(name, on_error="rollback").step("t/hold")
        datp.use(pipeline.step(f"t/{name}", final_from=True).step("t/nap").step("t/hold").build())
    for name in ("says", "says-sql", "says-vector"):
        pipeline = Pipeline(name).step("t/hold").step(f"t/{name}").step("t/nap")
        datp.use(pipeline.build())
    later = Pipeline("later", on_error="rollback").step("t/hold").step("t/sql", final_from=True)
    datp.use(
        later.step("t/send").build(),
        Pipeline("forward").step("t/hold").step("t/ask", forwards=True).step("t/nap").build(),
        Pipeline("forward-send")
        .step("t/ask", forwards=True)
        .step("t/send", final_from=True)
        .build(),
        Pipeline("forward-sql").step("t/ask", forwards=True).step("t/sql", final_from=True).build(),
    )


@pytest.fixture
def notes(datp: Kit) -> list[str]:
    """t/hold can be undone; t/send, t/sql, t/vector, t/says… are points; t/nap sleeps an hour."""
    said: list[str] = []
    with datp.connections.engine.begin() as sql:
        sql.exec_driver_sql(MONEY)
    declare_plain(datp, said)
    declare_sql(datp)
    declare_saying(datp, said)
    declare_sleepers(datp, said)
    declare_pipelines(datp)
    return said


POINTS = ("send", "sql", "vector", "says", "says-sql", "says-vector")


@pytest.mark.parametrize("name", POINTS)
def test_past_the_point_nothing_expires_and_the_end_is_a_success(
    datp: Kit, notes: list[str], name: str
) -> None:
    tx_id = datp.submit(name, {}, expires_in_s=30)
    assert datp.status(tx_id).no_return_at is not None
    datp.advance(seconds=60)
    assert watched(datp) == []
    assert datp.status(tx_id).status is Status.SLEEPING
    datp.advance(seconds=3_600)
    assert datp.status(tx_id).status is Status.SUCCESS
    assert history(datp, tx_id) == ["queued", "RECEIVED_FULFIL", "success"]
    assert "release" not in notes


@pytest.mark.parametrize("name", POINTS)
def test_past_the_point_a_cancel_is_refused_with_its_reason(
    datp: Kit, notes: list[str], name: str
) -> None:
    tx_id = datp.submit(name, {})
    with pytest.raises(NoReturn, match="has passed its point of no return and cannot be cancelled"):
        datp.client.cancel(tx_id)
    datp.advance(seconds=3_601)
    assert datp.status(tx_id).status is Status.SUCCESS


@pytest.mark.parametrize("name", ["send", "sql", "vector", "says", "says-sql", "says-vector"])
def test_a_cancel_that_was_recorded_first_wins_and_the_step_has_no_effect(
    datp: Kit, notes: list[str], name: str
) -> None:
    datp.crash_at("hop.after_checkpoint")
    tx_id = datp.submit(name, {})
    datp.crash_at("cancel.after_record")
    with pytest.raises(SimulatedCrash):
        # It dies before Redis hears of it.
        datp.client.cancel(tx_id, "not any more")
    datp.recover()
    ended = datp.status(tx_id)
    assert (ended.status, ended.note) == (Status.CANCELLED, "not any more")
    assert paid(datp) == []
    assert notes == ["hold", "release"]


@pytest.mark.parametrize("name", ["send", "sql", "vector", "says", "says-sql", "says-vector"])
def test_an_expiry_that_was_recorded_first_wins(datp: Kit, notes: list[str], name: str) -> None:
    datp.crash_at("hop.after_checkpoint")
    tx_id = datp.submit(name, {}, expires_in_s=300)
    assert datp.connections.record.mark_expiring([tx_id]) == {tx_id}
    datp.recover()
    datp.advance(seconds=300)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert paid(datp) == []
    assert notes == ["hold", "release"]


@pytest.mark.parametrize("how", ["late", "cancelled"])
def test_a_step_that_is_stopped_when_it_asks_does_not_go_on(
    datp: Kit, notes: list[str], how: str
) -> None:
    tx_id = datp.submit("says", {how: True}, expires_in_s=30)
    datp.advance(seconds=60)
    expected = Status.EXPIRED if how == "late" else Status.CANCELLED
    assert datp.status(tx_id).status is expected
    assert notes == ["hold", "release"]


def test_what_fails_after_it_promised_in_sql_is_not_bound(datp: Kit, notes: list[str]) -> None:
    tx_id = datp.submit("says-sql", {"fail": True})
    ended = datp.status(tx_id)
    assert (ended.status, ended.no_return_at) == (Status.FAILED, None)
    assert notes == ["hold", "release"]


def test_the_step_itself_may_say_no(datp: Kit, notes: list[str]) -> None:
    tx_id = datp.submit("send", {"fail": True})
    assert datp.status(tx_id).status is Status.FAILED
    assert notes == ["hold", "send", "release"]


def test_a_point_that_never_answers_is_parked_and_not_rolled_back(
    datp: Kit, notes: list[str]
) -> None:
    tx_id = datp.submit("send", {"broken": True}, expires_in_s=10)
    datp.advance(seconds=60)
    parked = datp.status(tx_id)
    assert parked.status is Status.IN_DOUBT
    assert "its point of no return is passed, so it is not rolled back" in str(parked.note)
    assert notes == ["hold", "send", "send"]
    assert watched(datp) == []


@pytest.mark.parametrize("how", ["fail", "broken"])
@pytest.mark.parametrize("decision", ["done", "fail"])
def test_a_later_step_that_fails_is_parked_and_a_person_decides(
    datp: Kit, notes: list[str], how: str, decision: Any
) -> None:
    tx_id = datp.submit("later", {how: True})
    datp.advance(seconds=60)
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert paid(datp) == [tx_id]
    [told] = alerts(datp, "in-doubt")
    assert "its point of no return is passed" in told
    datp.operator.resolve(tx_id, decision, reason="asked the payee")
    assert alerts(datp, "in-doubt") == []
    ended = datp.status(tx_id)
    assert ended.status is (Status.SUCCESS if decision == "done" else Status.FAILED)
    assert paid(datp) == ([tx_id] if decision == "done" else [])


def test_what_is_forwarded_neither_expires_nor_is_cancelled(datp: Kit, notes: list[str]) -> None:
    tx_id = datp.submit("forward", {}, expires_in_s=30)
    datp.advance(seconds=60)
    assert datp.status(tx_id).status is Status.SLEEPING
    assert watched(datp) == []
    with pytest.raises(NoReturn, match="was forwarded and cannot be cancelled until"):
        datp.client.cancel(tx_id)
    with pytest.raises(NoReturn, match="was forwarded and cannot be cancelled until"):
        datp.client.cancel(tx_id, only_if=lambda _: True)


def test_after_the_answer_the_expiry_counts_again(datp: Kit, notes: list[str]) -> None:
    tx_id = datp.submit("forward", {}, expires_in_s=30)
    datp.advance(seconds=60)
    datp.set_switch(tx_id, "answer", True)
    datp.advance(seconds=60)
    assert datp.status(tx_id).status is Status.EXPIRED
    names = ["queued", "RESERVED_FORWARDED", "RESERVED", "RESERVED_TIMEOUT", "EXPIRED_RESERVED"]
    assert history(datp, tx_id) == names
    assert notes == ["hold", "ask", "ask", "release"]


@pytest.mark.parametrize("name", ["forward-send", "forward-sql"])
def test_a_late_answer_to_what_was_forwarded_may_pass_the_point(
    datp: Kit, notes: list[str], name: str
) -> None:
    tx_id = datp.submit(name, {}, expires_in_s=30)
    datp.advance(seconds=60)
    assert datp.set_switch(tx_id, "answer", True).status is Status.SUCCESS
    assert history(datp, tx_id) == ["queued", "RESERVED_FORWARDED", "RECEIVED_FULFIL", "success"]


def test_an_answer_of_no_rolls_back(datp: Kit, notes: list[str]) -> None:
    tx_id = datp.submit("forward", {}, expires_in_s=30)
    assert datp.set_switch(tx_id, "answer", False).status is Status.FAILED
    assert notes[-1] == "release"


@pytest.mark.parametrize("name", ["send", "sql"])
def test_the_point_survives_the_loss_of_redis(datp: Kit, notes: list[str], name: str) -> None:
    tx_id = datp.submit(name, {}, expires_in_s=30)
    datp.connections.live.redis.flushdb()
    datp.recover()
    datp.advance(seconds=3_600)
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS
    assert "release" not in notes


def test_the_database_itself_refuses_both(datp: Kit, notes: list[str]) -> None:
    tx_id = datp.submit("send", {})
    for change in ("expiring_at = now()", "stop_request = 'x'"):
        with (
            pytest.raises(IntegrityError, match="tx_summary_one_way"),
            datp.connections.engine.begin() as sql,
        ):
            sql.exec_driver_sql(f"UPDATE tx_summary SET {change} WHERE tx_id = '{tx_id}'")


def test_a_step_is_the_point_or_forwards() -> None:
    with pytest.raises(PipelineInvalid, match="is finalFrom or forwards, not both"):
        Pipeline("both").step("util/delay", final_from=True, forwards=True).build()


def test_in_the_example_the_commit_is_the_point_of_no_return() -> None:
    folder = Path(__file__).parents[2] / "examples" / "payments" / "pipelines"
    [transfer] = load_definitions([folder / "transfer.yaml"])
    assert [step.type for step in transfer.steps if step.final_from] == ["payments/commit"]


def test_every_state_has_its_name_in_the_words_of_the_seed() -> None:
    found = {status: transfer_state(status, None) for status in Status}
    assert found == {
        Status.QUEUED: "RECEIVED_PREPARE",
        Status.SUCCESS: "COMMITTED",
        Status.FAILED: "ABORTED_REJECTED",
        Status.CANCELLED: "ABORTED_REJECTED",
        Status.ABORTED: "ABORTED_ERROR",
        Status.INTERNAL_ERROR: "FAILED",
        Status.EXPIRED: "EXPIRED_PREPARED",
        # Never a row of the log without a name of its own, or no state of a transfer.
        **{status: status for status in (Status.RUNNING, Status.SLEEPING, Status.IN_DOUBT)},
    }
    assert transfer_state(Status.EXPIRED, "EXPIRED_RESERVED") == "EXPIRED_RESERVED"


def test_why_and_the_list_of_timeouts_tell_it(datp: Kit, notes: list[str]) -> None:
    past = datp.submit("send", {}, expires_in_s=30)
    forwarded = datp.submit("forward", {}, expires_in_s=30)
    datp.lose_bells()
    waiting = datp.submit("send", {}, expires_in_s=30)
    datp.run_job("timeout_handler")
    assert "It passed its point of no return at" in datp.operator.why(past).answer
    assert "It was forwarded at" in datp.operator.why(forwarded).answer
    listed = Timeouts(datp.connections.engine, datp.clock).next_due(10)
    assert [(each.tx_id, each.state) for each in listed] == [(waiting, "RECEIVED_PREPARE")]
