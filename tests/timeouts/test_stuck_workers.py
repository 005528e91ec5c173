"""A worker that does not stop when it is asked loses its transaction."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.jobs import timeout_handler
from datp_tasks.live.live_types import Claimed, Held
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Final
from datp_tasks.testing import Kit
from tests.timeouts.history import RESERVED, history

Data = dict[str, Any]
STUCK = "a-node-that-beats-but-does-not-move"


@pytest.fixture
def diary(datp: Kit) -> list[str]:
    notes: list[str] = []

    @datp.step("t/do")
    def do(ctx: Any, data: Data) -> None:
        notes.append("do")

    @do.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        notes.append("undo")

    datp.use(Pipeline("p").step("t/do").step("t/do").build())
    return notes


def claimed_by_stuck(datp: Kit) -> Claimed:
    """A transaction in its first step, on a node that lives."""
    datp.lose_bells()
    tx_id = datp.submit("p", {}, expires_in_s=60)
    datp.lose_bells(False)
    datp.connections.live.beat(STUCK)
    [claim] = datp.connections.live.claim_many(
        [(tx_id, 1)], STUCK, step_type="t/do", begin='{"k":"begin"}'
    )
    assert isinstance(claim, Claimed)
    return claim


def let_time_pass(datp: Kit, seconds: float) -> None:
    datp.clock.advance(seconds=seconds)
    datp.connections.live.beat(STUCK)
    datp.run_job("reaper")
    datp.run_job("timeout_handler")


def test_it_is_taken_from_a_worker_that_does_not_move(datp: Kit, diary: list[str]) -> None:
    claim = claimed_by_stuck(datp)
    let_time_pass(datp, 60)
    assert datp.status(claim.tx_id).status is Status.RUNNING
    while datp.status(claim.tx_id).status is Status.RUNNING:
        let_time_pass(datp, datp.settings.timeout_retry_s)
        assert datp.clock.now_ms() < claim.fence + 600_000  # type: ignore[operator]
    assert datp.status(claim.tx_id).status is Status.EXPIRED
    assert history(datp, claim.tx_id) == RESERVED
    # What the lost step did had to be found out before it could be undone.
    assert diary == ["do", "undo"]


def test_it_is_not_taken_before_it_had_time_to_answer(datp: Kit, diary: list[str]) -> None:
    claim = claimed_by_stuck(datp)
    let_time_pass(datp, 60)
    let_time_pass(datp, timeout_handler.TAKEOVER_S - 1)
    assert datp.status(claim.tx_id).status is Status.RUNNING
    assert diary == []


def test_its_worker_is_refused_everywhere_afterwards(datp: Kit, diary: list[str]) -> None:
    claim = claimed_by_stuck(datp)
    let_time_pass(datp, 60)
    datp.lose_bells()
    let_time_pass(datp, timeout_handler.TAKEOVER_S)
    assert datp.status(claim.tx_id).status is Status.QUEUED
    live, record = datp.connections.live, datp.connections.record
    held = Held(claim.tx_id, claim.fence)
    assert live.run([live.call_checkpoint(held)])[0][0] == "STALE"
    for status in (Status.SUCCESS, Status.FAILED, Status.EXPIRED):
        late = Final(
            tx_id=claim.tx_id, fence=claim.fence, status=status, output_json=None, note=None
        )
        assert record.finish_many([late]) == set()
    datp.lose_bells(False)
    datp.recover()
    assert datp.status(claim.tx_id).status is Status.EXPIRED


def test_a_worker_that_has_moved_since_it_was_asked_keeps_it(datp: Kit, diary: list[str]) -> None:
    """It has seen that it must stop; how long its rollback takes is its own affair."""
    claim = claimed_by_stuck(datp)
    let_time_pass(datp, 60)
    live = datp.connections.live
    reply = live.run([live.call_checkpoint(Held(claim.tx_id, claim.fence, ({"k": "close"},)))])[0]
    assert reply[0] == "OK"
    assert reply[1].startswith("expired:")
    for _ in range(10):
        let_time_pass(datp, timeout_handler.TAKEOVER_S)
    assert datp.status(claim.tx_id).status is Status.RUNNING


def test_one_whose_node_is_gone_is_taken_by_the_reaper_and_then_rolled_back(
    datp: Kit, diary: list[str]
) -> None:
    claim = claimed_by_stuck(datp)
    datp.advance(seconds=60)
    datp.recover()
    assert datp.status(claim.tx_id).status is Status.EXPIRED
    assert history(datp, claim.tx_id) == RESERVED


def test_a_row_that_a_step_holds_is_looked_at_again_soon(datp: Kit, diary: list[str]) -> None:
    """A transactional step holds the row of its transaction until it commits."""
    claim = claimed_by_stuck(datp)
    datp.clock.advance(seconds=60)
    with datp.connections.engine.connect() as step:
        step.exec_driver_sql("SELECT 1 FROM tx_summary FOR SHARE")
        datp.run_job("timeout_handler")
        assert history(datp, claim.tx_id) == ["queued"]
        assert "cancel" not in datp.connections.live.fields_many([claim.tx_id])[0]
    datp.clock.advance(seconds=datp.settings.timeout_handler_period_s)
    datp.run_job("timeout_handler")
    assert history(datp, claim.tx_id) == ["queued", "RESERVED_TIMEOUT"]
    datp.connections.live.forget_node(STUCK)
    datp.connections.live.beat(STUCK)
    datp.recover()
