"""The point of no return, where Redis does not know it or SQL cannot be asked."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from datp_tasks import Fail, Pipeline, Sleep
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.status import Status
from datp_tasks.record.points import Points
from datp_tasks.testing import Kit

Data = dict[str, Any]


@pytest.fixture
def notes(datp: Kit) -> list[str]:
    """t/hold can be undone; t/send and t/says are points; t/nap sleeps an hour."""
    said: list[str] = []

    @datp.step("t/hold")
    def hold(ctx: Any, data: Data) -> None:
        said.append("hold")

    @hold.rollback
    def release(ctx: Any, data: Data, output: Data) -> None:
        said.append("release")

    @datp.step("t/send")
    def send(ctx: Any, data: Data) -> None:
        said.append("send")

    @datp.step("t/says")
    def says(ctx: Any, data: Data) -> None:
        ctx.commit_to_finish()
        said.append("says")

    @datp.step("t/nap")
    def nap(ctx: Any, data: Data) -> Sleep | None:
        return Sleep(seconds=3_600) if ctx.sleeps == 0 else None

    datp.use(Pipeline("says").step("t/hold").step("t/says").step("t/nap").build())
    return said


def test_a_step_that_said_so_and_breaks_after_a_crash_is_not_rolled_back(
    datp: Kit, notes: list[str]
) -> None:
    """The point is in SQL only: the worker died before Redis had it."""

    @datp.step("t/tells", retry={"max_attempts": 1})
    def tells(ctx: Any, data: Data) -> None:
        if "tells" in notes:
            raise ConnectionError("no answer")
        ctx.commit_to_finish()
        notes.append("tells")

    datp.use(Pipeline("tells", on_error="rollback").step("t/hold").step("t/tells").build())
    datp.crash_at("hop.after_step", nth=2)
    tx_id = datp.submit("tells", {})
    datp.recover()
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert notes == ["hold", "tells"]


def test_one_that_redis_lost_after_its_point_is_not_rolled_back(
    datp: Kit, notes: list[str]
) -> None:
    """It begins again, and what it meets on the way must not undo what is past return."""

    @datp.step("t/check", retry={"max_attempts": 1})
    def check(ctx: Any, data: Data) -> None:
        notes.append("check")
        if "send" in notes:
            raise Fail("the account is empty")

    datp.use(
        Pipeline("checked", on_error="rollback")
        .step("t/hold")
        .step("t/check")
        .step("t/send", final_from=True)
        .step("t/nap")
        .build()
    )
    tx_id = datp.submit("checked", {})
    assert datp.status(tx_id).status is Status.SLEEPING
    redis = datp.connections.redis
    redis.delete(*redis.scan_iter(match=f"{datp.settings.key_prefix}:*"))
    datp.run_job("pipeline_cache")
    datp.recover()
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert "release" not in notes


def away(*_: Any) -> Any:
    raise OperationalError("SELECT", {}, Exception("the server is not there"))


def test_a_cancel_that_sql_cannot_confirm_now_does_not_wait_for_the_end_of_a_sleep(
    datp: Kit, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @datp.step("t/long")
    def long(ctx: Any, data: Data) -> Sleep:
        notes.append("long")
        if ctx.sleeps == 0:
            datp.client.cancel(ctx.tx_id, "not any more")
        return Sleep(seconds=86_400)

    datp.use(Pipeline("long").step("t/hold").step("t/long").build())
    with monkeypatch.context() as patched:
        patched.setattr(Points, "confirm_stops", away)
        tx_id = datp.submit("long", {})
        assert datp.status(tx_id).status is Status.SLEEPING
        # It wakes and cannot be confirmed: the step, whose day is not over, is not run.
        datp.advance(seconds=datp.settings.timeout_retry_s + 1)
        assert datp.status(tx_id).status is Status.SLEEPING
    datp.advance(seconds=datp.settings.timeout_retry_s + 1)
    assert datp.status(tx_id).status is Status.CANCELLED
    assert notes == ["hold", "long", "release"]


def test_after_a_crash_it_waits_for_sql_to_say_whether_it_is_bound(
    datp: Kit, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    datp.crash_at("hop.after_step", nth=2)
    tx_id = datp.submit("says", {})
    with monkeypatch.context() as patched:
        patched.setattr(Points, "bound", away)
        datp.recover()
        assert notes == ["hold", "says"]
    datp.advance(seconds=datp.settings.timeout_retry_s + 1)
    assert notes == ["hold", "says", "says"]
    assert datp.status(tx_id).status is Status.SLEEPING


def test_a_cancel_of_a_client_that_died_does_not_wake_what_is_past_return(
    datp: Kit, notes: list[str]
) -> None:
    """It would be refused; and a step that sleeps would take it for the end of its time."""
    tx_id = datp.submit("says", {})
    datp.crash_at("signal.after_sql")
    with pytest.raises(SimulatedCrash):
        datp.client.cancel(tx_id, "not any more")
    datp.clock.advance(seconds=30)
    datp.run_job("reconciler")
    assert datp.status(tx_id).status is Status.SLEEPING
    assert "cancel" not in datp.connections.live.fields_many([tx_id])[0]
