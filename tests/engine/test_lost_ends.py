"""An end that SQL, Redis or the way between them does not take at once is not lost."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from datp_tasks import Pipeline, failpoints
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Final
from datp_tasks.testing import Kit

Data = dict[str, Any]


@pytest.fixture
def ran(datp: Kit) -> list[str]:
    """The transactions whose step ran, each time that it did."""
    ran: list[str] = []

    @datp.step("t/book")
    def book(ctx: Any, data: Data) -> None:
        ran.append(ctx.tx_id)

    @datp.step("t/pay", on_crash="review")
    def pay(ctx: Any, data: Data) -> None:
        ran.append(ctx.tx_id)

    datp.use(Pipeline("book").step("t/book").build(), Pipeline("pay").step("t/pay").build())
    return ran


def status_in_redis(kit: Kit, tx_id: str) -> str:
    return kit.connections.live.fields_many([tx_id])[0]["status"]


def test_what_ends_while_postgresql_is_unavailable_ends_later_without_running_again(
    datp: Kit, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = datp.connections.record

    def away(finals: list[Final]) -> set[str]:
        raise OperationalError("UPDATE", {}, Exception("the server is not there"))

    with monkeypatch.context() as patched:
        patched.setattr(record, "finish_many", away)
        tx_id = datp.submit("book", {})
        assert status_in_redis(datp, tx_id) == "queued"
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS
    assert ran == [tx_id]


def test_when_redis_refuses_what_sql_let_end_it_ends_there_too(datp: Kit, ran: list[str]) -> None:
    """Between the two commits a reaper of a fallen-back Redis took the claim away."""
    live = datp.connections.live
    datp.lose_bells()
    tx_id = datp.submit("book", {})
    datp.lose_bells(False)

    def take_over() -> None:
        fields = live.fields_many([tx_id])[0]
        fence = int(fields["fence"])
        live.take_over_many([(tx_id, fence, fence + 1)], fields["node"])

    failpoints.arm("hop.after_final", take_over)
    datp.ring_together([tx_id])
    assert status_in_redis(datp, tx_id) == "success"
    datp.recover()
    assert ran == [tx_id]


def test_what_sql_does_not_let_a_worker_park_is_not_parked_in_redis(
    datp: Kit, ran: list[str]
) -> None:
    datp.crash_at("hop.after_step")
    tx_id = datp.submit("pay", {})
    datp.lose_bells()
    datp.recover()
    datp.lose_bells(False)

    def raise_fence() -> None:
        fence = int(datp.connections.live.fields_many([tx_id])[0]["fence"])
        datp.connections.record.raise_fences([(tx_id, fence)])

    failpoints.arm("hop.after_claim", raise_fence)
    datp.ring_together([tx_id])
    assert datp.connections.record.summaries([tx_id])[0].status is Status.QUEUED
    assert status_in_redis(datp, tx_id) == "queued"
    # Whoever claims it under the newest fence does park it.
    datp.recover()
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert ran == [tx_id]


def test_what_sql_has_ended_and_redis_has_queued_ends_without_running(
    datp: Kit, ran: list[str]
) -> None:
    """Redis fell back by a little, and its bell was lost as well."""
    datp.lose_bells()
    tx_id = datp.submit("book", {})
    datp.lose_bells(False)
    end = Final(
        tx_id=tx_id, fence=10**13, status=Status.CANCELLED, output_json=None, note="told so"
    )
    assert datp.connections.record.finish_many([end]) == {tx_id}
    assert status_in_redis(datp, tx_id) == "queued"
    datp.recover()
    assert status_in_redis(datp, tx_id) == "cancelled"
    assert ran == []
