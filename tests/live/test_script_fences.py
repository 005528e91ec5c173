"""Fences: they only grow, and a writer that shows an old one changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from datp_tasks.live.live_types import Bell, Claimed, Refused
from datp_tasks.model.stop_request import StopRequest
from tests.support.live_states import NODE, OPENS, OTHER_NODE, Stage

# Each writer shows the fence of the claim it is given; the word that the script answered.
WRITERS: dict[str, Callable[[Stage, Claimed, str], str]] = {
    "checkpoint": lambda stage, claim, node: str(stage.checkpoint(claim, "place", "p/9")[0]),
    "hand_over": lambda stage, claim, node: str(stage.hand_over(claim, node=node)[0]),
    "sleep": lambda stage, claim, node: str(stage.sleep(claim, node=node)[0]),
    "park": lambda stage, claim, node: str(stage.park(claim, node=node)[0]),
    "finish": lambda stage, claim, node: str(stage.finish(claim, node=node)[0]),
    "report_progress": lambda stage, claim, node: _report_progress(stage, claim),
    "take_over": lambda stage, claim, node: _take_over(stage, claim, node),
}


def _report_progress(stage: Stage, claim: Claimed) -> str:
    refused = stage.live.report_progress(claim.tx_id, claim.fence, "{}")
    return refused.word if refused else "OK"


def _take_over(stage: Stage, claim: Claimed, node: str) -> str:
    order = (claim.tx_id, claim.fence, claim.fence + 1_000_000)
    answer = stage.live.take_over_many([order], node)[0]
    return answer.word if isinstance(answer, Refused) else "OK"


# Each situation gives a claim that was right once and is not any more.


def held_by_another(stage: Stage) -> Claimed:
    claim, bell = stage.handed_over()
    stage.claimed(bell, node=OTHER_NODE)
    return claim


def held_again_by_the_same_node(stage: Stage) -> Claimed:
    claim, bell = stage.handed_over()
    stage.claimed(bell, node=NODE)
    return claim


def queued_again(stage: Stage) -> Claimed:
    return stage.handed_over()[0]


def lost_and_created_again(stage: Stage) -> Claimed:
    claim = stage.claimed()
    lose_everything(stage)
    stage.live.create_many([replace(stage.new(), tx_id=claim.tx_id)])
    stage.clock.advance(seconds=1)
    stage.claimed(Bell(claim.tx_id, 1, "", "", "", ""))
    return claim


def lose_everything(stage: Stage) -> None:
    for key in stage.picture():
        stage.redis.delete(key)


SITUATIONS = [
    held_by_another,
    held_again_by_the_same_node,
    queued_again,
    lost_and_created_again,
    Stage.taken_over,
    Stage.sleeping,
    Stage.parked,
    Stage.finished,
    Stage.archived,
    Stage.gone,
]


@pytest.mark.parametrize("reach", SITUATIONS, ids=lambda reach: reach.__name__)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_stale_writer_changes_nothing(
    stage: Stage, writer: str, reach: Callable[[Stage], Claimed]
) -> None:
    claim = reach(stage)
    status = stage.status(claim.tx_id)
    with stage.nothing_changes():
        word = WRITERS[writer](stage, claim, NODE)
    if writer == "finish" and status == "success":
        assert word == "FINAL"
    elif writer == "finish" and status == "gone":
        assert word == "UNKNOWN"
    else:
        assert word == "STALE"


@pytest.mark.parametrize("writer", WRITERS)
def test_the_holder_may_write(stage: Stage, writer: str) -> None:
    assert WRITERS[writer](stage, stage.claimed(), NODE) == "OK"


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_guessed_fence_is_refused(stage: Stage, writer: str, off_by: int) -> None:
    claim = stage.claimed()
    with stage.nothing_changes():
        word = WRITERS[writer](stage, claim._replace(fence=claim.fence + off_by), NODE)
    assert word == "STALE"


def test_a_fence_follows_the_clock(stage: Stage) -> None:
    assert stage.claimed().fence == stage.now_ms


def test_fences_grow_while_the_clock_stands_still(stage: Stage) -> None:
    claim = stage.claimed()
    fences = [claim.fence]
    for _ in range(3):
        _, bell = stage.handed_over(claim)
        claim = stage.claimed(bell)
        fences.append(claim.fence)
    assert fences == [stage.now_ms + n for n in range(4)]


def test_fences_grow_when_the_clock_goes_back(stage: Stage) -> None:
    claim, bell = stage.handed_over()
    stage.clock.advance(days=-1)
    assert stage.claimed(bell).fence == claim.fence + 1


def test_a_cancel_that_takes_the_transaction_gets_a_higher_fence(stage: Stage) -> None:
    claim, bell = stage.handed_over(stage.claimed(begin=""))
    seized = stage.live.stop(bell.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert isinstance(seized, Claimed)
    assert seized.fence == claim.fence + 1


def test_the_fence_does_not_go_back_when_redis_lost_the_transaction(stage: Stage) -> None:
    bell = stage.queued()
    before = stage.claimed(bell)
    lose_everything(stage)
    stage.clock.advance(seconds=0.001)
    assert stage.live.create_many([replace(stage.new(), tx_id=bell.tx_id)])[0] is not None
    assert stage.fields(bell.tx_id)["fence"] == "0"
    assert stage.claimed(bell).fence > before.fence


def test_the_fence_of_a_take_over_is_the_one_that_sql_knows(stage: Stage) -> None:
    claim = stage.claimed()
    order = (claim.tx_id, claim.fence, claim.fence + 5_000)
    bell = stage.live.take_over_many([order], NODE)[0]
    assert isinstance(bell, Bell)
    assert stage.claimed(bell, node=OTHER_NODE, begin=OPENS).fence == claim.fence + 5_001


def test_without_an_injected_time_redis_tells_it(real_time_stage: Stage) -> None:
    stage = real_time_stage
    before_ms = stage.now_ms
    claim = stage.claimed()
    asleep = stage.sleep(claim, sleep_ms=5_000)
    after_ms = stage.now_ms
    assert before_ms <= claim.fence <= after_ms
    assert before_ms + 5_000 <= int(asleep[1]) <= after_ms + 5_000
    assert stage.live.wake_many([claim.tx_id], only_due=True) == [
        Refused(claim.tx_id, "NOT_DUE", asleep[1])
    ]


def test_an_injected_time_is_used_instead_of_that_of_redis(stage: Stage) -> None:
    stage.clock.advance(days=-10_000)
    bell = stage.queued()
    assert stage.score(bell.tx_id, "queuedZ") == stage.now_ms
    claim = stage.claimed(bell)
    assert stage.score(bell.tx_id, "processingZ") == stage.now_ms == claim.fence
    assert int(stage.sleep(claim, sleep_ms=1)[1]) == stage.now_ms + 1
