"""take_over.lua: a transaction of a dead node is queued again."""

from __future__ import annotations

from datp_tasks.live.live_types import Bell, Refused
from tests.support.live_states import NODE, OPENS, STEP, Stage


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
