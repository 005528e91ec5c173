"""A worker that was thought dead, and lost its transactions, can do no harm any more."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from datp_tasks import Fail, Pipeline, Sleep, failpoints
from datp_tasks.engine import guard
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.engine.guarded import GuardedHop
from tests.support.books import Books
from tests.support.eventually import eventually

Data = dict[str, Any]


def take_over(kit: Kit, tx_id: str) -> None:
    """What the reaper does when a node is silent; nobody rings yet."""
    live, record = kit.connections.live, kit.connections.record
    fields = live.fields_many([tx_id])[0]
    fence = int(fields["fence"])
    raised = record.raise_fences([(tx_id, fence)])
    live.take_over_many([(tx_id, fence, raised[tx_id])], fields["node"])


@pytest.mark.parametrize("steps_after", [0, 1])
def test_what_a_step_returns_after_its_claim_was_lost_is_dropped(
    datp: Kit, steps_after: int
) -> None:
    ran: list[str] = []

    @datp.step("t/slow")
    def slow(ctx: Any, data: Data) -> Data:
        ran.append(f"slow {ctx.attempt}")
        if ctx.attempt == 1:
            take_over(datp, ctx.tx_id)
        return {"by": ctx.attempt}

    @datp.step("t/next")
    def following(ctx: Any, data: Data) -> None:
        ran.append(f"next after {data['by']}")

    pipeline = Pipeline("p").step("t/slow")
    for _ in range(steps_after):
        pipeline.step("t/next")
    datp.use(pipeline.build())
    tx_id = datp.submit("p", {})
    assert ran == ["slow 1"]
    assert datp.status(tx_id).status is Status.QUEUED
    datp.recover()
    assert datp.status(tx_id).output == {"by": 2}
    assert ran == ["slow 1", "slow 2", "next after 2"][: 2 + steps_after]


@pytest.mark.parametrize("outcome", ["sleep", "fail", "break", "progress"])
def test_nothing_else_that_it_does_counts_either(datp: Kit, outcome: str) -> None:
    @datp.step("t/slow", retry={"max_attempts": 1})
    def slow(ctx: Any, data: Data) -> Any:
        if ctx.attempt > 1:
            return {"by": ctx.attempt}
        take_over(datp, ctx.tx_id)
        match outcome:
            case "sleep":
                return Sleep(seconds=86_400)
            case "fail":
                raise Fail("no")
            case "break":
                raise RuntimeError
        ctx.progress({"stage": "lies"})
        raise AssertionError("it went on without its claim")

    datp.use(Pipeline("p").step("t/slow").build())
    tx_id = datp.submit("p", {})
    assert datp.status(tx_id).status is Status.QUEUED
    datp.recover()
    summary = datp.status(tx_id)
    assert (summary.status, summary.output) == (Status.SUCCESS, {"by": 2})
    assert summary.progress is None


def test_a_transactional_step_without_its_claim_has_no_effect(datp: Kit, books: Books) -> None:
    @datp.step("t/lose")
    def lose(ctx: Any, data: Data) -> None:
        if ctx.attempt == 1:
            take_over(datp, ctx.tx_id)

    @datp.step("t/pay", transactional=True, on_crash="review")
    def pay(ctx: Any, data: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, "pay")

    datp.use(Pipeline("p").step("t/lose").step("t/pay").build())
    tx_id = datp.submit("p", {})
    assert books.lines(tx_id) == []
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS
    assert books.lines(tx_id) == ["pay"]


def test_the_guard_of_a_transactional_step_shuts_out_a_lost_claim(datp: Kit) -> None:
    """Between the claim and the step SQL learns of the new fence; Redis was not asked again."""
    calls: list[str] = []

    @datp.step("t/pay", transactional=True)
    def pay(ctx: Any, data: Data) -> None:
        calls.append(ctx.tx_id)

    datp.use(Pipeline("p").step("t/pay").build())
    datp.lose_bells()
    tx_id = datp.submit("p", {})
    [(_, pairs)] = datp.send.rung
    failpoints.arm("hop.after_claim", lambda: take_over(datp, tx_id))
    assert datp.celery.tasks["datp.step.t/pay"].apply_async(args=(pairs,)).get() == 1
    assert calls == []
    datp.lose_bells(False)
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS
    assert calls == [tx_id]


def test_a_lost_claim_in_a_vector_does_not_disturb_the_others(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "STUCK_MS", 50)
    kit = Kit(datp_servers)
    slow_may_end = threading.Event()

    @kit.step("t/async", timeout_s=30)
    async def asynchronous(ctx: Any, data: Data) -> Data:
        if data["how"] == "slow":
            await asyncio.to_thread(slow_may_end.wait, 20)
        if data["how"] == "lost" and ctx.attempt == 1:
            take_over(kit, ctx.tx_id)
            ctx.progress({"stage": "lies"})
        return {**data, "by": ctx.attempt}

    kit.use(Pipeline("p").step("t/async").build())
    kit.lose_bells()
    txs = [kit.submit("p", {"how": how}) for how in ("lost", "slow", "quick")]
    pairs = [pair for _, rung in kit.send.rung for pair in rung]
    kit.lose_bells(False)
    hop = GuardedHop(kit)
    hop.start("t/async", pairs)

    def quick_has_ended() -> bool:
        hop.go_on()
        return kit.status(txs[2]).status is Status.SUCCESS

    try:
        eventually(quick_has_ended)
        assert kit.status(txs[0]).status is Status.QUEUED
    finally:
        slow_may_end.set()
        hop.join()
    assert kit.status(txs[1]).status is Status.SUCCESS
    kit.lose_bells(False)
    kit.recover()
    assert kit.status(txs[0]).output == {"how": "lost", "by": 2}
    kit.close()
