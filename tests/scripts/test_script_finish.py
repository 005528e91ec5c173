"""finish.lua and confirm_archived.lua: the end, and leaving memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datp_tasks.live.types import Bell, Claimed, Refused
from datp_tasks.model.stop_request import StopRequest
from tests.scripts.live_states import HERE, NODE, OTHER_NODE, STATE_JSON, Stage, held


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


def test_the_end_is_told_to_whoever_waits(stage: Stage) -> None:
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
        stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id))])
        for key in (stage.live.keys.state(claim.tx_id), stage.live.keys.deltas(claim.tx_id)):
            stage.redis.delete(key)
    assert stage.finish(claim, node=NODE)[0] == ("UNKNOWN" if left else "FINAL")
    assert stage.live.running_on(NODE) == []


# Leaving memory.


def test_an_archived_state_stays_for_a_while(stage: Stage) -> None:
    claim = stage.finished()
    written = [(claim.tx_id, stage.version(claim.tx_id))]
    assert stage.live.confirm_archived_many(written) == 1
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    ttl_ms = stage.settings.state_ttl_s * 1_000
    assert ttl_ms - 60_000 < stage.redis.pttl(stage.live.keys.state(claim.tx_id)) <= ttl_ms


def test_deltas_leave_together_with_their_state(stage: Stage) -> None:
    claim = stage.claimed()
    stage.finish(claim, "expired", json="", follow_sql=True)
    assert stage.deltas(claim.tx_id)
    stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id))])
    keys = stage.live.keys
    left_ms = [stage.redis.pttl(key(claim.tx_id)) for key in (keys.state, keys.deltas)]
    assert left_ms[0] > 0
    assert abs(left_ms[0] - left_ms[1]) < 1_000


def test_confirming_twice_is_harmless(stage: Stage) -> None:
    claim = stage.finished()
    written = [(claim.tx_id, stage.version(claim.tx_id))]
    stage.live.confirm_archived_many(written)
    with stage.nothing_changes():
        stage.live.confirm_archived_many(written)


def test_a_state_that_changed_since_it_was_written_stays_due(stage: Stage) -> None:
    claim = stage.sleeping()
    old = stage.version(claim.tx_id)
    bell = stage.live.wake_many([claim.tx_id], only_due=False)[0]
    assert isinstance(bell, Bell)
    stage.finished(stage.claimed(bell))
    with stage.nothing_changes():
        assert stage.live.confirm_archived_many([(claim.tx_id, old)]) == 0


@pytest.mark.parametrize("longer_ms", [-1, 0, 1])
def test_only_one_that_sleeps_longer_than_it_would_stay_leaves_memory(
    stage: Stage, longer_ms: int
) -> None:
    stay_ms = stage.settings.sleeping_ttl_s * 1_000
    claim = stage.sleeping(sleep_ms=stay_ms + longer_ms)
    leaves = longer_ms > 0
    written = [(claim.tx_id, stage.version(claim.tx_id))]
    assert stage.live.confirm_archived_many(written) == int(leaves)
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    assert stage.score(claim.tx_id, "sleepingZ") == stage.now_ms + stay_ms + longer_ms
    left_ms = stage.redis.pttl(stage.live.keys.state(claim.tx_id))
    assert stay_ms - 60_000 < left_ms <= stay_ms if leaves else left_ms == -1


def test_what_is_left_of_the_sleep_counts_not_its_length(stage: Stage) -> None:
    stay_s = stage.settings.sleeping_ttl_s
    claim = stage.sleeping(sleep_ms=(stay_s + 10) * 1_000)
    stage.clock.advance(seconds=10)
    assert stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id))]) == 0
    assert stage.redis.pttl(stage.live.keys.state(claim.tx_id)) == -1


@pytest.mark.parametrize("change", ["switch", "wake", "cancel", "follow_sql"])
def test_one_that_is_about_to_leave_stays_once_it_changes(stage: Stage, change: str) -> None:
    claim = stage.sleeping(sleep_ms=10**9)
    tx_id, key = claim.tx_id, stage.live.keys.state(claim.tx_id)
    assert stage.live.confirm_archived_many([(tx_id, stage.version(tx_id))]) == 1
    assert stage.redis.pttl(key) > 0
    if change == "switch":
        stage.live.set_switch(tx_id, "kyc", "1")
    elif change == "wake":
        stage.live.wake_many([tx_id], only_due=False)
    elif change == "cancel":
        stage.live.stop(tx_id, StopRequest.cancel("enough"), NODE)
    else:
        stage.live.follow_sql([(tx_id, "expired")])
    assert stage.redis.pttl(key) == -1


def test_one_that_never_began_is_seized_out_of_its_way_out(stage: Stage) -> None:
    claim = stage.sleeping(stage.claimed(begin=""), sleep_ms=10**9)
    stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id))])
    assert isinstance(stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), NODE), Claimed)
    assert stage.redis.pttl(stage.live.keys.state(claim.tx_id)) == -1


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("script", ["checkpoint", "hand_over"])
def test_of_one_that_goes_on_sql_has_a_copy_and_it_stays(
    stage: Stage, script: str, behind: bool
) -> None:
    claim = stage.claimed()
    if script == "checkpoint":
        call = stage.live.call_checkpoint(held(claim), snapshot=True)
    else:
        call = stage.live.call_hand_over(held(claim), NODE, STATE_JSON, HERE, snapshot=True)
    assert stage.live.run([call])[0][0] == "OK"
    assert stage.score(claim.tx_id, "toArchiveZ") == stage.now_ms
    written = stage.version(claim.tx_id)
    if behind:
        stage.live.set_switch(claim.tx_id, "kyc", "1")
    assert stage.live.confirm_archived_many([(claim.tx_id, written)]) == 0
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    assert stage.redis.pttl(stage.live.keys.state(claim.tx_id)) == -1


def test_of_one_that_is_in_doubt_sql_gets_the_last_version(stage: Stage) -> None:
    claim = stage.parked()
    assert stage.score(claim.tx_id, "toArchiveZ") == stage.now_ms
    written = stage.version(claim.tx_id)
    stage.live.set_switch(claim.tx_id, "kyc", "1")
    with stage.nothing_changes():
        stage.live.confirm_archived_many([(claim.tx_id, written)])
    assert stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id))]) == 0
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    assert stage.redis.pttl(stage.live.keys.state(claim.tx_id)) == -1


@pytest.mark.parametrize("how", ["woken", "claimed", "parked"])
def test_one_that_woke_while_it_was_being_archived_never_leaves_memory(
    stage: Stage, how: str
) -> None:
    claim = stage.sleeping(sleep_ms=10**9)
    written = [(claim.tx_id, stage.version(claim.tx_id))]
    bell = stage.live.wake_many([claim.tx_id], only_due=False)[0]
    assert isinstance(bell, Bell)
    if how != "woken":
        claim = stage.claimed(bell, begin="")
    if how == "parked":
        call = stage.live.call_park(stage.holding_nothing_new(claim), NODE, "{}", "who knows")
        stage.live.run([call])
    # Waking makes a new version, too.
    assert int(stage.version(claim.tx_id)) > int(written[0][1])
    assert stage.live.confirm_archived_many(written) == 0
    # Of one that is parked SQL must still get the last version.
    assert (stage.score(claim.tx_id, "toArchiveZ") is not None) == (how == "parked")
    assert stage.redis.pttl(stage.live.keys.state(claim.tx_id)) == -1


def test_one_that_is_gone_is_taken_off_the_list(stage: Stage) -> None:
    claim = stage.finished()
    stage.redis.delete(stage.live.keys.state(claim.tx_id))
    assert stage.live.confirm_archived_many([(claim.tx_id, "")]) == 0
    assert stage.score(claim.tx_id, "toArchiveZ") is None


def test_readers_of_an_ended_transaction_are_refused_by_words_not_errors(stage: Stage) -> None:
    claim = stage.archived()
    tx_id = claim.tx_id
    with stage.nothing_changes():
        assert stage.live.wake_many([tx_id], only_due=False) == [
            Refused(tx_id, "NOT_SLEEPING", "success")
        ]
        assert stage.live.ring_again_many([tx_id]) == [Refused(tx_id, "NOT_QUEUED", "success")]
