"""What expiry does to a transaction, wherever it is when its time is over."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Abort, Call, Fail, Pipeline, Sleep
from datp_tasks.errors import TransactionFinal
from datp_tasks.jobs import timeout_handler
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.timeouts.history import PREPARED, RESERVED, history, watched

Data = dict[str, Any]


def let_expire(datp: Kit) -> None:
    """The handler comes by, and nobody else."""
    datp.run_job("timeout_handler")


@pytest.fixture
def diary(datp: Kit) -> list[str]:
    """Steps that note what they do: t/do (can be undone), t/nap (sleeps), t/slow (expires)."""
    notes: list[str] = []

    @datp.step("t/do")
    def do(ctx: Any, data: Data) -> Data:
        notes.append("do")
        return {"done": True}

    @do.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        assert output == {"done": True}
        notes.append("undo")

    @datp.step("t/nap")
    def nap(ctx: Any, data: Data) -> Sleep | None:
        notes.append("nap")
        return Sleep(seconds=3_600) if ctx.sleeps == 0 else None

    @datp.step("t/slow")
    def slow(ctx: Any, data: Data) -> Data:
        notes.append("slow")
        datp.clock.advance(seconds=61)
        let_expire(datp)
        return {"slow": True}

    @slow.rollback
    def undo_slow(ctx: Any, data: Data, output: Data) -> None:
        assert output == {"slow": True}
        notes.append("undo slow")

    datp.use(
        Pipeline("do").step("t/do").build(),
        Pipeline("nap").step("t/do").step("t/nap").step("t/do").build(),
        Pipeline("slow").step("t/do").step("t/slow").step("t/do").build(),
        Pipeline("elsewhere").step("t/do").step("t/slow").step("t/do", group="other").build(),
        Pipeline("minute", expires_in_s=60).step("t/nap").build(),
    )
    return notes


def test_one_that_has_not_begun_expires_at_once_and_without_a_worker(
    datp: Kit, diary: list[str]
) -> None:
    datp.lose_bells()
    tx_id = datp.submit("do", {}, expires_in_s=60)
    datp.clock.advance(seconds=59)
    let_expire(datp)
    assert datp.status(tx_id).status is Status.QUEUED
    datp.clock.advance(seconds=1)
    let_expire(datp)
    summary = datp.status(tx_id)
    assert summary.status is Status.EXPIRED
    assert summary.expires_at is not None
    assert summary.note == f"it was not over by {summary.expires_at.isoformat()}"
    assert history(datp, tx_id) == PREPARED
    datp.lose_bells(False)
    datp.recover()
    assert diary == []
    assert watched(datp) == []


def test_one_that_sleeps_is_woken_and_rolled_back(datp: Kit, diary: list[str]) -> None:
    tx_id = datp.submit("nap", {}, expires_in_s=60)
    assert datp.status(tx_id).status is Status.SLEEPING
    datp.advance(seconds=60)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert diary == ["do", "nap", "undo"]
    assert history(datp, tx_id) == RESERVED
    datp.advance(days=1)
    assert diary == ["do", "nap", "undo"]
    assert watched(datp) == []


def test_one_that_runs_is_stopped_at_its_next_checkpoint(datp: Kit, diary: list[str]) -> None:
    tx_id = datp.submit("slow", {}, expires_in_s=60)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert diary == ["do", "slow", "undo slow", "undo"]
    assert history(datp, tx_id) == RESERVED


def test_one_that_would_go_to_another_group_is_rolled_back_there(
    datp: Kit, diary: list[str]
) -> None:
    tx_id = datp.submit("elsewhere", {}, expires_in_s=60)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert diary == ["do", "slow", "undo slow", "undo"]
    assert history(datp, tx_id) == RESERVED


def test_a_queued_one_that_has_begun_is_rolled_back(datp: Kit, diary: list[str]) -> None:
    tx_id = datp.submit("nap", {}, expires_in_s=7_200)
    datp.lose_bells()
    datp.advance(seconds=3_600)
    assert datp.status(tx_id).status is Status.QUEUED
    datp.clock.advance(seconds=3_600)
    datp.lose_bells(False)
    let_expire(datp)
    datp.recover()
    assert datp.status(tx_id).status is Status.EXPIRED
    assert diary == ["do", "nap", "undo"]


def test_nothing_happens_to_one_that_ends_in_time_or_has_no_expiry(
    datp: Kit, diary: list[str]
) -> None:
    in_time = datp.run("do", {}, expires_in_s=60).tx_id
    asleep = datp.submit("nap", {})
    datp.advance(seconds=3_000)
    assert datp.status(in_time).status is Status.SUCCESS
    assert datp.status(asleep).status is Status.SLEEPING
    assert watched(datp) == []


def test_after_its_expiry_nothing_new_is_begun_even_if_no_handler_runs(datp: Kit) -> None:
    ran: list[str] = []

    @datp.step("t/overslept")
    def overslept(ctx: Any, data: Data) -> Sleep | None:
        ran.append("overslept")
        return Sleep(seconds=100)

    datp.use(Pipeline("p").step("t/overslept").build())
    tx_id = datp.submit("p", {}, expires_in_s=60)
    for _ in range(3):
        datp.clock.advance(seconds=100)
        datp.run_job("sleeper")
    assert ran == ["overslept"]
    assert datp.status(tx_id).status is Status.SLEEPING
    let_expire(datp)
    assert datp.status(tx_id).status is Status.EXPIRED


def test_between_two_steps_the_second_is_not_begun(datp: Kit, diary: list[str]) -> None:
    @datp.step("t/late")
    def late(ctx: Any, data: Data) -> None:
        diary.append("late")
        datp.clock.advance(seconds=61)

    # The fence tells the worker when it claimed, so the second hop knows that time has passed.
    datp.use(Pipeline("p").step("t/late").step("t/do", dispatch="queue").build())
    tx_id = datp.submit("p", {}, expires_in_s=60)
    assert datp.status(tx_id).status is Status.SLEEPING
    let_expire(datp)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert diary == ["late"]


def test_steps_in_child_pipelines_are_rolled_back_too(datp: Kit, diary: list[str]) -> None:
    @datp.step("t/call")
    def call(ctx: Any, data: Data) -> Call:
        return Call("child", {})

    datp.use(
        Pipeline("child", startable=False, expires_in_s=1).step("t/do").step("t/nap").build(),
        Pipeline("parent").step("t/do").step("t/call").build(),
    )
    tx_id = datp.submit("parent", {}, expires_in_s=60)
    datp.advance(seconds=30)
    assert datp.status(tx_id).status is Status.SLEEPING
    datp.advance(seconds=30)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert diary == ["do", "do", "nap", "undo", "undo"]


def test_the_try_that_left_no_trace_is_undone_where_the_step_can(datp: Kit) -> None:
    undone: list[Any] = []

    @datp.step("t/half", retry={"max_attempts": 5, "first_s": 3_600})
    def half(ctx: Any, data: Data) -> None:
        raise TimeoutError("no answer")

    @half.rollback(partial=True)
    def undo(ctx: Any, data: Data, output: Data | None) -> None:
        undone.append(output)

    datp.use(Pipeline("p").step("t/half").build())
    tx_id = datp.submit("p", {}, expires_in_s=60)
    datp.advance(seconds=60)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert undone == [None]


@pytest.mark.parametrize(
    ("error", "status"), [(Fail("no"), Status.FAILED), (Abort("no"), Status.ABORTED)]
)
def test_a_step_that_says_no_is_heard_also_after_the_expiry(
    datp: Kit, error: Exception, status: Status
) -> None:
    """Only a success can come too late."""

    @datp.step("t/no")
    def no(ctx: Any, data: Data) -> None:
        datp.clock.advance(seconds=61)
        let_expire(datp)
        raise error

    datp.use(Pipeline("p").step("t/no").build())
    summary = datp.run("p", {}, expires_in_s=60)
    assert (summary.status, summary.note) == (status, "no")
    let_expire(datp)
    assert watched(datp) == []


def test_a_rollback_that_goes_on_past_the_expiry_ends_as_it_began(
    datp: Kit, diary: list[str]
) -> None:
    @datp.step("t/sticky", retry={"max_attempts": 3, "first_s": 600})
    def sticky(ctx: Any, data: Data) -> None: ...

    @sticky.rollback
    def unstick(ctx: Any, data: Data, output: Data) -> None:
        diary.append("unstick")
        if ctx.attempt < 3:
            raise TimeoutError("no answer")

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no")

    datp.use(Pipeline("p").step("t/do").step("t/sticky").step("t/fail").build())
    tx_id = datp.submit("p", {}, expires_in_s=60)
    datp.advance(seconds=60)
    datp.finish(tx_id)
    summary = datp.status(tx_id)
    assert (summary.status, summary.note) == (Status.FAILED, "no")
    assert diary == ["do", "unstick", "unstick", "unstick", "undo"]


def test_what_was_cancelled_before_its_expiry_ends_as_cancelled(
    datp: Kit, diary: list[str]
) -> None:
    tx_id = datp.submit("nap", {}, expires_in_s=60)
    datp.lose_bells()
    datp.client.cancel(tx_id, "changed my mind")
    datp.clock.advance(seconds=60)
    let_expire(datp)
    datp.lose_bells(False)
    datp.recover()
    summary = datp.status(tx_id)
    assert (summary.status, summary.note) == (Status.CANCELLED, "changed my mind")
    assert diary == ["do", "nap", "undo"]


def test_what_has_expired_cannot_be_cancelled(datp: Kit, diary: list[str]) -> None:
    tx_id = datp.submit("nap", {}, expires_in_s=60)
    datp.lose_bells()
    datp.clock.advance(seconds=60)
    let_expire(datp)
    datp.client.cancel(tx_id, "too late")
    datp.lose_bells(False)
    datp.recover()
    assert datp.status(tx_id).status is Status.EXPIRED
    with pytest.raises(TransactionFinal, match="has ended: expired"):
        datp.client.cancel(tx_id)


def test_one_in_doubt_is_left_to_the_operator(datp: Kit) -> None:
    @datp.step("t/unsafe", on_crash="review")
    def unsafe(ctx: Any, data: Data) -> None:
        datp.crash_at("hop.after_step")

    datp.use(Pipeline("p").step("t/unsafe").build())
    tx_id = datp.submit("p", {}, expires_in_s=3_600)
    datp.recover()
    assert datp.status(tx_id).status is Status.IN_DOUBT
    datp.advance(seconds=3_600)
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert watched(datp) == [tx_id]


def test_the_pipeline_says_how_long_unless_the_client_does(datp: Kit, diary: list[str]) -> None:
    by_pipeline = datp.submit("minute", {})
    by_client = datp.submit("minute", {}, expires_in_s=600)
    datp.advance(seconds=60)
    assert datp.status(by_pipeline).status is Status.EXPIRED
    assert datp.status(by_client).status is Status.SLEEPING
    datp.advance(seconds=540)
    assert datp.status(by_client).status is Status.EXPIRED


def test_a_client_that_waits_gets_the_answer(datp: Kit, diary: list[str]) -> None:
    datp.lose_bells()
    tx_id = datp.submit("do", {}, expires_in_s=60)
    answers: list[Status] = []
    waiter = threading.Thread(target=lambda: answers.append(datp.client.wait(tx_id, 30).status))
    waiter.start()
    datp.clock.advance(seconds=60)
    let_expire(datp)
    waiter.join(30)
    assert answers == [Status.EXPIRED]


def test_one_that_never_reached_redis_expires_once_it_is_there(datp: Kit, diary: list[str]) -> None:
    datp.lose_bells()
    tx_id = datp.submit("do", {}, expires_in_s=60)
    datp.lose_bells(False)
    # SQL has heard of this shard, and can tell that it has lost nothing since.
    while datp.submit("do", {})[1:3] != tx_id[1:3]:
        pass
    datp.run_job("archiver")
    datp.run_job("reconciler")
    diary.clear()
    datp.lose_bells()
    keys = datp.connections.live.keys
    datp.connections.redis.delete(keys.state(tx_id), keys.of_tx(tx_id, "queuedZ"))
    datp.clock.advance(seconds=60)
    let_expire(datp)
    assert datp.status(tx_id).status is Status.QUEUED
    datp.run_job("reconciler")
    datp.clock.advance(seconds=datp.settings.timeout_handler_period_s)
    let_expire(datp)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert diary == []


def test_redis_follows_where_sql_knows_of_the_end_already(datp: Kit, diary: list[str]) -> None:
    datp.lose_bells()
    tx_id = datp.submit("do", {}, expires_in_s=60)
    let_expire(datp)
    with datp.connections.engine.begin() as sql:
        sql.execute(text("UPDATE tx_summary SET status = 'failed', completed_at = now()"))
    datp.clock.advance(seconds=60)
    let_expire(datp)
    fields = datp.connections.live.fields_many([tx_id])[0]
    assert fields["status"] == "failed"
    assert watched(datp) == []


def test_many_expire_in_bounded_batches_of_one_run(
    datp: Kit, diary: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    datp.lose_bells()
    ids = [datp.submit("do", {"n": n}, expires_in_s=60) for n in range(5)]
    monkeypatch.setattr(timeout_handler, "BATCH_MAX", 2)
    datp.clock.advance(seconds=60)
    result = datp.run_job("timeout_handler")
    assert (result.expired, result.asked, result.taken) == (5, 0, 0)
    assert {datp.status(tx_id).status for tx_id in ids} == {Status.EXPIRED}
    # The node of the handler is gone with its run.
    nodes = datp.connections.redis.zrange(datp.connections.live.keys.nodes, 0, -1)
    assert not [node for node in nodes if str(node).startswith("timeouts-")]
