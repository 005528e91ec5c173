"""ring_again.lua, note_problem.lua, take_over.lua, beat.lua and silent_nodes.lua."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datp_tasks.live.types import Bell, Claimed, Refused
from tests.support.live_states import NODE, OPENS, OTHER_NODE, STEP, Stage


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


def test_a_problem_is_noted_for_people_until_it_is_queued_anew(stage: Stage) -> None:
    _, bell = stage.handed_over()
    stage.live.note_problems([(bell.tx_id, bell.sequence)], "no worker offers the step")
    fields = stage.fields(bell.tx_id)
    assert (fields["status"], fields["problem"]) == ("queued", "no worker offers the step")


def test_a_problem_of_an_old_bell_is_not_noted(stage: Stage) -> None:
    _, bell = stage.handed_over()
    with stage.nothing_changes():
        stage.live.note_problems([(bell.tx_id, bell.sequence - 1)], "out of date")


# Nodes that are gone.


def test_a_taken_over_transaction_is_queued_with_the_new_fence(stage: Stage) -> None:
    claim = stage.claimed()
    order = (claim.tx_id, claim.fence, claim.fence + 7)
    bell = Bell(claim.tx_id, 2, "master", STEP, "p/0", "out")
    assert stage.live.take_over_many([order], NODE) == [bell]
    fields = stage.fields(claim.tx_id)
    assert (fields["status"], fields["fence"]) == ("queued", str(claim.fence + 7))
    assert stage.deltas(claim.tx_id) == [OPENS, '{"k":"crash"}']
    assert fields["version"] == str(stage.now_ms + 1)
    assert stage.live.running_on(NODE) == []
    assert stage.score(claim.tx_id, "processingZ") is None


def test_two_reapers_take_a_transaction_over_once(stage: Stage) -> None:
    claim = stage.claimed()
    order = (claim.tx_id, claim.fence, claim.fence + 1)
    later = (claim.tx_id, claim.fence, claim.fence + 2)
    stage.live.take_over_many([order], NODE)
    with stage.nothing_changes():
        assert stage.live.take_over_many([later], NODE) == [Refused(claim.tx_id, "STALE", "queued")]


def test_a_node_that_came_back_and_claimed_again_keeps_what_it_runs(stage: Stage) -> None:
    claim, bell = stage.handed_over()
    again = stage.claimed(bell, node=NODE)
    late = (claim.tx_id, claim.fence, claim.fence + 1_000)
    assert stage.live.take_over_many([late], NODE) == [Refused(claim.tx_id, "STALE", "running")]
    assert stage.live.running_on(NODE) == [again.tx_id]
    assert stage.finish(again)[0] == "OK"


def test_a_node_is_cleared_of_what_it_does_not_run(stage: Stage) -> None:
    claim, bell = stage.handed_over()
    stage.claimed(bell, node=OTHER_NODE)
    left = stage.gone().tx_id
    for tx_id in (claim.tx_id, left):
        stage.redis.sadd(stage.live.keys.of_tx(tx_id, f"runningS:{NODE}"), tx_id)
    stage.live.drop_running(NODE, [claim.tx_id, left])
    assert stage.live.running_on(NODE) == []
    assert stage.live.running_on(OTHER_NODE) == [claim.tx_id]


def test_a_node_is_not_cleared_of_what_it_claimed_since_somebody_looked(stage: Stage) -> None:
    claim = stage.claimed()
    with stage.nothing_changes():
        stage.live.drop_running(NODE, [claim.tx_id])


def test_a_silent_node_is_given_up_after_a_second_look(stage: Stage) -> None:
    stage.live.beat(NODE)
    stage.clock.advance(seconds=stage.settings.node_stale_ms / 1_000)
    assert stage.live.silent_nodes() == []
    stage.clock.advance(seconds=stage.settings.node_grace_ms / 1_000 - 0.001)
    assert stage.live.silent_nodes() == []
    stage.clock.advance(seconds=0.001)
    assert stage.live.silent_nodes() == [NODE]


def test_an_outage_of_redis_does_not_make_every_node_look_dead(stage: Stage) -> None:
    for node in (NODE, OTHER_NODE):
        stage.live.beat(node)
    stage.clock.advance(days=1)
    assert stage.live.silent_nodes() == []
    stage.live.beat(NODE)
    stage.clock.advance(seconds=stage.settings.node_grace_ms / 1_000)
    assert stage.live.silent_nodes() == [OTHER_NODE]


def test_noticing_a_silent_node_twice_does_not_start_its_grace_again(stage: Stage) -> None:
    stage.live.beat(NODE)
    stage.clock.advance(days=1)
    for _ in range(4):
        stage.live.silent_nodes()
        stage.clock.advance(seconds=stage.settings.node_grace_ms / 4_000)
    assert stage.live.silent_nodes() == [NODE]


def test_a_node_that_beats_is_not_silent(stage: Stage) -> None:
    for _ in range(5):
        stage.live.beat(NODE)
        stage.clock.advance(seconds=stage.settings.node_stale_ms / 1_000 - 0.001)
        assert stage.live.silent_nodes() == []


def test_a_forgotten_node_is_not_looked_for(stage: Stage) -> None:
    stage.live.beat(NODE)
    stage.clock.advance(days=1)
    stage.live.silent_nodes()
    stage.live.forget_node(NODE)
    stage.clock.advance(days=1)
    assert stage.live.silent_nodes() == []
