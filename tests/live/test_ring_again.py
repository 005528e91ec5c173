"""ring_again.lua: a bell that may be lost is rung again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datp_tasks.live.live_types import Bell, Claimed, Refused
from tests.support.live_states import NODE, OTHER_NODE, Stage


def test_ringing_again_tells_the_bell_and_moves_to_the_end_of_the_line(stage: Stage) -> None:
    bell = stage.queued()
    stage.clock.advance(seconds=10)
    assert stage.live.due("queuedZ", before_ms=5_000, batch_max=10) == [bell.tx_id]
    assert stage.live.ring_again_many([bell.tx_id]) == [bell]
    assert stage.score(bell.tx_id, "queuedZ") == stage.now_ms
    assert stage.live.due("queuedZ", before_ms=5_000, batch_max=10) == []


def test_since_when_it_waits_is_told_however_often_it_is_rung_again(stage: Stage) -> None:
    bell = stage.queued()
    queued_ms = stage.now_ms
    for _ in range(3):
        stage.clock.advance(seconds=10)
        assert stage.live.queued_since([bell.tx_id]) == [queued_ms]
        stage.live.ring_again_many([bell.tx_id])
    assert stage.live.queued_since([bell.tx_id]) == [queued_ms]


def test_one_that_is_queued_anew_waits_since_then(stage: Stage) -> None:
    bell = stage.queued()
    stage.clock.advance(seconds=10)
    stage.live.ring_again_many([bell.tx_id])
    stage.clock.advance(seconds=10)
    claim = stage.claimed(bell)
    assert stage.live.queued_since([bell.tx_id]) == [None]
    stage.clock.advance(seconds=10)
    stage.live.take_over_many([(claim.tx_id, claim.fence, claim.fence + 7)], NODE)
    assert stage.live.queued_since([bell.tx_id]) == [stage.now_ms]
    stage.clock.advance(seconds=10)
    stage.live.ring_again_many([bell.tx_id])
    assert stage.live.queued_since([bell.tx_id]) == [stage.now_ms - 10_000]


def test_both_bells_of_one_that_was_rung_again_give_one_claim(stage: Stage) -> None:
    bell = stage.queued()
    again = stage.live.ring_again_many([bell.tx_id])[0]
    assert isinstance(again, Bell)
    stage.claimed(again)
    late = stage.live.claim_many([(bell.tx_id, bell.sequence)], OTHER_NODE)[0]
    assert late == Refused(bell.tx_id, "NOT_QUEUED", "running")


@pytest.mark.parametrize(
    ("reach", "status"),
    [
        (Stage.claimed, "running"),
        (Stage.sleeping, "sleeping"),
        (Stage.parked, "in-doubt"),
        (Stage.finished, "success"),
        (Stage.gone, "UNKNOWN"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_is_not_queued_needs_no_bell(
    stage: Stage, reach: Callable[[Stage], Claimed], status: str
) -> None:
    claim = reach(stage)
    refused = Refused(claim.tx_id, "NOT_QUEUED", status)
    with stage.nothing_changes():
        assert stage.live.ring_again_many([claim.tx_id]) == [refused]
        stage.live.note_problems([(claim.tx_id, 1)], "no worker offers the step")


def test_one_that_is_gone_is_taken_off_the_queue(stage: Stage) -> None:
    bell = stage.queued()
    stage.redis.delete(stage.live.keys.state(bell.tx_id))
    stage.redis.delete(stage.live.keys.of_tx(bell.tx_id, "countsH"))
    assert stage.live.ring_again_many([bell.tx_id]) == [
        Refused(bell.tx_id, "NOT_QUEUED", "UNKNOWN")
    ]
    assert stage.picture() == {}
