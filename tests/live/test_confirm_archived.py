"""confirm_archived.lua: a state leaves memory once SQL has it."""

from __future__ import annotations

import pytest

from datp_tasks.jobs.archiver import as_confirmed
from datp_tasks.live import store
from datp_tasks.live.archive_feed import Copied
from datp_tasks.live.live_types import Bell, Claimed
from datp_tasks.model.stop_request import StopRequest
from tests.support.live_states import HERE, NODE, STATE_JSON, Stage, held


def test_an_archived_state_stays_for_a_while(stage: Stage) -> None:
    claim = stage.finished()
    confirmed = [(claim.tx_id, stage.version(claim.tx_id), "")]
    assert stage.live.confirm_archived_many(confirmed) == 1
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    ttl_ms = stage.settings.state_ttl_s * 1_000
    assert ttl_ms - 60_000 < stage.redis.pttl(stage.live.keys.state(claim.tx_id)) <= ttl_ms


def test_one_that_is_there_as_it_was_written_leaves(stage: Stage) -> None:
    claim = stage.finished()
    (fields,) = stage.live.fields_many([claim.tx_id])
    as_written = as_confirmed(claim.tx_id, Copied.of(fields, []))
    assert as_written == (claim.tx_id, fields["version"], "success")
    assert stage.live.confirm_archived_many([as_written]) == 1
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    ttl_ms = stage.settings.state_ttl_s * 1_000
    assert ttl_ms - 60_000 < stage.redis.pttl(stage.live.keys.state(claim.tx_id)) <= ttl_ms


def test_one_that_goes_on_under_the_version_of_its_end_does_not_leave(stage: Stage) -> None:
    """Redis and its clock fell back, and it got the same version a second time."""
    claim = stage.claimed()
    ended = (claim.tx_id, stage.version(claim.tx_id), "success")
    assert stage.live.confirm_archived_many([ended]) == 0
    assert stage.redis.pttl(stage.live.keys.state(claim.tx_id)) == -1


def test_one_that_ended_and_changed_since_it_was_written_stays_due(stage: Stage) -> None:
    claim = stage.finished()
    older = str(int(stage.version(claim.tx_id)) - 1)
    assert stage.live.confirm_archived_many([(claim.tx_id, older, "success")]) == 0
    assert stage.score(claim.tx_id, "toArchiveZ") is not None


def test_one_with_deltas_after_its_json_is_looked_at(stage: Stage) -> None:
    claim = stage.claimed()
    stage.finish(claim, "expired", json="", follow_sql=True)
    (fields,) = stage.live.fields_many([claim.tx_id])
    assert as_confirmed(claim.tx_id, Copied.of(fields, [])) == (claim.tx_id, fields["version"], "")


def test_deltas_leave_together_with_their_state(stage: Stage) -> None:
    claim = stage.claimed()
    stage.finish(claim, "expired", json="", follow_sql=True)
    assert stage.deltas(claim.tx_id)
    stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id), "")])
    keys = stage.live.keys
    left_ms = [stage.redis.pttl(key(claim.tx_id)) for key in (keys.state, keys.deltas)]
    assert left_ms[0] > 0
    assert abs(left_ms[0] - left_ms[1]) < 1_000


def test_each_of_a_vector_leaves_or_stays_by_itself(stage: Stage) -> None:
    """They share one call and one ZREM; one that changed meanwhile stays due."""
    first, changed, last = stage.finished(), stage.parked(), stage.finished()
    gone = f"t07-{'0' * 32}"
    stage.redis.zadd(stage.live.keys.of_tx(gone, "toArchiveZ"), {gone: 1})
    confirmed = [(each.tx_id, stage.version(each.tx_id), "") for each in (first, changed, last)]
    stage.live.set_switch(changed.tx_id, "kyc", "1")
    round_trips = stage.live.round_trips
    assert stage.live.confirm_archived_many([*confirmed, (gone, "", "")]) == 2
    assert stage.live.round_trips == round_trips + 1
    keys = (stage.live.keys.state(each.tx_id) for each in (first, changed, last))
    assert [stage.redis.pttl(key) > 0 for key in keys] == [True, False, True]
    due = [stage.score(each, "toArchiveZ") for each in (first.tx_id, last.tx_id, gone)]
    assert due == [None, None, None]
    assert stage.score(changed.tx_id, "toArchiveZ") is not None


def test_confirming_twice_is_harmless(stage: Stage) -> None:
    claim = stage.finished()
    confirmed = [(claim.tx_id, stage.version(claim.tx_id), "")]
    stage.live.confirm_archived_many(confirmed)
    with stage.nothing_changes():
        stage.live.confirm_archived_many(confirmed)


def test_a_state_that_changed_since_it_was_written_stays_due(stage: Stage) -> None:
    claim = stage.sleeping()
    old = stage.version(claim.tx_id)
    bell = stage.live.wake_many([claim.tx_id], only_due=False)[0]
    assert isinstance(bell, Bell)
    stage.finished(stage.claimed(bell))
    with stage.nothing_changes():
        assert stage.live.confirm_archived_many([(claim.tx_id, old, "")]) == 0


@pytest.mark.parametrize("longer_ms", [-1, 0, 1])
def test_only_one_that_sleeps_longer_than_it_would_stay_leaves_memory(
    stage: Stage, longer_ms: int
) -> None:
    stay_ms = store.SLEEPING_TTL_S * 1_000
    claim = stage.sleeping(sleep_ms=stay_ms + longer_ms)
    leaves = longer_ms > 0
    confirmed = [(claim.tx_id, stage.version(claim.tx_id), "")]
    assert stage.live.confirm_archived_many(confirmed) == int(leaves)
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    assert stage.score(claim.tx_id, "sleepingZ") == stage.now_ms + stay_ms + longer_ms
    left_ms = stage.redis.pttl(stage.live.keys.state(claim.tx_id))
    assert stay_ms - 60_000 < left_ms <= stay_ms if leaves else left_ms == -1


def test_what_is_left_of_the_sleep_counts_not_its_length(stage: Stage) -> None:
    stay_s = store.SLEEPING_TTL_S
    claim = stage.sleeping(sleep_ms=(stay_s + 10) * 1_000)
    stage.clock.advance(seconds=10)
    assert stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id), "")]) == 0
    assert stage.redis.pttl(stage.live.keys.state(claim.tx_id)) == -1


@pytest.mark.parametrize("change", ["switch", "wake", "cancel", "follow_sql"])
def test_one_that_is_about_to_leave_stays_once_it_changes(stage: Stage, change: str) -> None:
    claim = stage.sleeping(sleep_ms=10**9)
    tx_id, key = claim.tx_id, stage.live.keys.state(claim.tx_id)
    assert stage.live.confirm_archived_many([(tx_id, stage.version(tx_id), "")]) == 1
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
    stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id), "")])
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
    version = stage.version(claim.tx_id)
    if behind:
        stage.live.set_switch(claim.tx_id, "kyc", "1")
    assert stage.live.confirm_archived_many([(claim.tx_id, version, "")]) == 0
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    assert stage.redis.pttl(stage.live.keys.state(claim.tx_id)) == -1


def test_of_one_that_is_in_doubt_sql_gets_the_last_version(stage: Stage) -> None:
    claim = stage.parked()
    assert stage.score(claim.tx_id, "toArchiveZ") == stage.now_ms
    version = stage.version(claim.tx_id)
    stage.live.set_switch(claim.tx_id, "kyc", "1")
    with stage.nothing_changes():
        stage.live.confirm_archived_many([(claim.tx_id, version, "")])
    assert stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id), "")]) == 0
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    assert stage.redis.pttl(stage.live.keys.state(claim.tx_id)) == -1


@pytest.mark.parametrize("how", ["woken", "claimed", "parked"])
def test_one_that_woke_while_it_was_being_archived_never_leaves_memory(
    stage: Stage, how: str
) -> None:
    claim = stage.sleeping(sleep_ms=10**9)
    confirmed = [(claim.tx_id, stage.version(claim.tx_id), "")]
    bell = stage.live.wake_many([claim.tx_id], only_due=False)[0]
    assert isinstance(bell, Bell)
    if how != "woken":
        claim = stage.claimed(bell, begin="")
    if how == "parked":
        call = stage.live.call_park(stage.holding_nothing_new(claim), NODE, "{}", "who knows")
        stage.live.run([call])
    # Waking makes a new version, too.
    assert int(stage.version(claim.tx_id)) > int(confirmed[0][1])
    assert stage.live.confirm_archived_many(confirmed) == 0
    # Of one that is parked SQL must still get the last version.
    assert (stage.score(claim.tx_id, "toArchiveZ") is not None) == (how == "parked")
    assert stage.redis.pttl(stage.live.keys.state(claim.tx_id)) == -1


def test_one_that_is_gone_is_taken_off_the_list(stage: Stage) -> None:
    claim = stage.finished()
    stage.redis.delete(stage.live.keys.state(claim.tx_id))
    assert stage.live.confirm_archived_many([(claim.tx_id, "", "")]) == 0
    assert stage.score(claim.tx_id, "toArchiveZ") is None
