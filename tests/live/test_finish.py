"""finish.lua: Redis follows the end that SQL decided."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datp_tasks.live.live_types import Claimed, Refused
from datp_tasks.model.stop_request import StopRequest
from tests.support.live_states import NODE, OTHER_NODE, Stage


@pytest.mark.parametrize(
    "status", ["success", "failed", "aborted", "cancelled", "expired", "internal-error"]
)
def test_a_running_transaction_ends_as_sql_decided(stage: Stage, status: str) -> None:
    claim = stage.claimed()
    stage.live.stop(claim.tx_id, StopRequest.cancel("too late"), OTHER_NODE)
    assert stage.finish(claim, status, json='{"end":1}') == ["OK", str(stage.now_ms + 2)]
    fields = stage.fields(claim.tx_id)
    assert (fields["status"], fields["state"]) == (status, '{"end":1}')
    assert fields["version"] == fields["jsonVersion"] == str(stage.now_ms + 2)
    assert not {"node", "cancel", "stepType"} & fields.keys()
    assert stage.deltas(claim.tx_id) == []
    delay_ms = stage.settings.delay_before_archiving_s * 1_000
    assert stage.score(claim.tx_id, "toArchiveZ") == stage.now_ms + delay_ms
    assert stage.live.running_on(NODE) == []


def test_the_end_is_told_to_those_who_wait(stage: Stage) -> None:
    with stage.news() as news:
        claim = stage.finished(status="failed")
        assert news() == f"completed:{claim.tx_id}:failed"


def test_ending_twice_changes_and_tells_nothing_more(stage: Stage) -> None:
    claim = stage.finished()
    with stage.news() as news, stage.nothing_changes():
        assert stage.finish(claim, "failed") == ["FINAL", "success"]
        assert news(timeout_s=0.05) is None


@pytest.mark.parametrize(
    "reach",
    [Stage.claimed, Stage.taken_over, Stage.sleeping, Stage.parked],
    ids=lambda reach: reach.__name__,
)
def test_when_sql_is_final_redis_follows_from_any_status(
    stage: Stage, reach: Callable[[Stage], Claimed]
) -> None:
    claim = reach(stage)
    assert stage.finish(claim, "expired", json="", follow_sql=True)[0] == "OK"
    assert stage.status(claim.tx_id) == "expired"
    assert stage.faults(claim.tx_id) == []


def test_following_sql_keeps_the_state_and_tells_its_version(stage: Stage) -> None:
    claim = stage.claimed()
    stage.checkpoint(claim)
    before, deltas = stage.fields(claim.tx_id), stage.deltas(claim.tx_id)
    reply = stage.finish(claim, "expired", json="", follow_sql=True)
    version = str(int(before["version"]) + 1)
    assert reply == ["OK", version]
    after = stage.fields(claim.tx_id)
    assert (after["state"], after["version"]) == (before["state"], version)
    assert after["jsonVersion"] == before["jsonVersion"] == "0"
    assert stage.deltas(claim.tx_id) == deltas


def test_an_unknown_transaction_is_not_made_by_its_end(stage: Stage) -> None:
    claim = stage.gone()
    with stage.nothing_changes():
        assert stage.finish(claim, "success", follow_sql=True) == ["UNKNOWN", ""]


def test_following_sql_takes_it_from_the_node_that_runs_it(stage: Stage) -> None:
    claims = [stage.claimed(node=NODE), stage.claimed(node=OTHER_NODE), stage.sleeping()]
    stage.live.follow_sql([(claim.tx_id, "expired") for claim in claims])
    assert [stage.status(claim.tx_id) for claim in claims] == ["expired"] * 3
    assert stage.live.running_on(NODE) == stage.live.running_on(OTHER_NODE) == []


@pytest.mark.parametrize("left", [False, True])
def test_a_node_that_comes_late_lets_go_of_what_has_ended(stage: Stage, left: bool) -> None:
    claim = stage.claimed(node=NODE)
    # Followed by somebody who did not know that this node runs it.
    stage.finish(claim, "expired", node=OTHER_NODE, json="", follow_sql=True)
    assert stage.faults(claim.tx_id) == ["final, but with runningS"]
    if left:
        stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id), "")])
        for key in (stage.live.keys.state(claim.tx_id), stage.live.keys.deltas(claim.tx_id)):
            stage.redis.delete(key)
    assert stage.finish(claim, node=NODE)[0] == ("UNKNOWN" if left else "FINAL")
    assert stage.live.running_on(NODE) == []


def test_readers_of_an_ended_transaction_are_refused_by_words_not_errors(stage: Stage) -> None:
    claim = stage.archived()
    tx_id = claim.tx_id
    with stage.nothing_changes():
        assert stage.live.wake_many([tx_id], only_due=False) == [
            Refused(tx_id, "NOT_SLEEPING", "success")
        ]
        assert stage.live.ring_again_many([tx_id]) == [Refused(tx_id, "NOT_QUEUED", "success")]
