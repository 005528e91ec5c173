"""restore.lua: back from SQL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datp_tasks.live.live_types import Bell, Claimed, Refused, Restored
from datp_tasks.model.state import CRASH, State, delta_json
from tests.support.live_states import (
    HERE,
    NODE,
    OTHER_NODE,
    STATE_JSON,
    STEP,
    Stage,
)

LONG_MS = 10**9

#: As a worker writes it.
WRITTEN = State.from_json(STATE_JSON).to_json()


def asleep(stage: Stage) -> Claimed:
    """With a state that SQL can tell from the journal."""
    claim = stage.claimed(begin="")
    stage.live.set_switch(claim.tx_id, "limit", "7")
    call = stage.live.call_sleep(
        stage.holding_nothing_new(claim), NODE, WRITTEN, HERE, sleep_ms=LONG_MS, switch="kyc"
    )
    assert stage.live.run([call])[0][0] == "OK"
    return claim


def left(stage: Stage) -> tuple[str, Restored, dict[str, str]]:
    """One that sleeps long and has left; what brings it back, and what it was."""
    tx_id = asleep(stage).tx_id
    fields, order = stage.fields(tx_id), stage.as_sql_has_it(tx_id, stage.folded(tx_id))
    assert stage.live.confirm_archived_many([(tx_id, fields["version"], "")]) == 1
    stage.redis.delete(stage.live.keys.state(tx_id))
    stage.live.left.add(tx_id)
    return tx_id, order, fields


def restore(stage: Stage, order: Restored) -> Bell | Refused:
    return stage.live.restore_many([order])[0]


def lost(stage: Stage, claim: Claimed) -> Restored:
    """Redis has none of it; SQL knows it from the journal."""
    view = stage.folded(claim.tx_id)
    view.status = "queued"
    order = stage.as_sql_has_it(claim.tx_id, view)
    stage.clock.advance(seconds=1)
    lines = delta_json(CRASH)
    return replace(order, fence=stage.now_ms, rebuilt=True, lines=lines, status="queued")


def test_one_that_sleeps_comes_back_for_a_while_as_it_was(stage: Stage) -> None:
    tx_id, order, fields = left(stage)
    sequence = stage.now_ms // 1_000
    bell = restore(stage, replace(order, ttl_ms=60_000))
    assert bell == Bell(tx_id, sequence, "master", STEP, "p/0", "out")
    assert stage.fields(tx_id) == fields | {"sequence": str(sequence)}
    assert stage.score(tx_id, "sleepingZ") == int(fields["wakeTime"])
    assert stage.score(tx_id, "toArchiveZ") is None
    assert 0 < stage.redis.pttl(stage.live.keys.state(tx_id)) <= 60_000
    assert stage.folded(tx_id) == stage.view(tx_id)


def test_without_a_time_to_leave_it_is_due_for_the_archive(stage: Stage) -> None:
    tx_id, order, _ = left(stage)
    restore(stage, order)
    assert stage.redis.pttl(stage.live.keys.state(tx_id)) == -1
    assert stage.score(tx_id, "toArchiveZ") == stage.now_ms


def test_one_that_came_back_wakes_by_its_switch_and_stays(stage: Stage) -> None:
    tx_id, order, fields = left(stage)
    restore(stage, replace(order, ttl_ms=60_000))
    bell = stage.live.set_switch(tx_id, "kyc", "true")
    assert isinstance(bell, Bell)
    assert stage.redis.pttl(stage.live.keys.state(tx_id)) == -1
    claim = stage.claimed(bell)
    assert claim.fence > int(fields["fence"])
    assert claim.fields["state"] == fields["state"]


def test_the_bells_of_before_find_the_door_shut(stage: Stage) -> None:
    tx_id, order, fields = left(stage)
    restore(stage, order)
    bell = stage.live.wake_many([tx_id], only_due=False)[0]
    assert isinstance(bell, Bell)
    for sequence in range(int(fields["sequence"]) + 2):
        answer = stage.live.claim_many([(tx_id, sequence)], NODE)[0]
        assert answer == Refused(tx_id, "OLD_BELL", str(bell.sequence))
    assert stage.claimed(bell)


def test_one_that_has_ended_comes_back_for_its_readers(stage: Stage) -> None:
    claim = stage.claimed(begin="")
    call = stage.live.call_finish(stage.holding_nothing_new(claim), NODE, "success", WRITTEN)
    stage.live.run([call])
    fields = stage.fields(claim.tx_id)
    order = stage.as_sql_has_it(claim.tx_id, stage.folded(claim.tx_id))
    stage.lose(claim.tx_id)
    stage.live.left.add(claim.tx_id)
    assert isinstance(restore(stage, replace(order, ttl_ms=60_000)), Bell)
    sequence = str(stage.now_ms // 1_000)
    assert stage.fields(claim.tx_id) == fields | {"sequence": sequence, "priority": "out"}
    assert 0 < stage.redis.pttl(stage.live.keys.state(claim.tx_id)) <= 60_000


def test_two_that_bring_it_back_do_so_once(stage: Stage) -> None:
    tx_id, order, fields = left(stage)
    restore(stage, order)
    stage.clock.advance(seconds=5)
    with stage.nothing_changes():
        assert restore(stage, order) == Refused(tx_id, "NEWER", fields["version"])


def test_one_that_woke_since_it_was_read_in_sql_is_left_alone(stage: Stage) -> None:
    tx_id, order, _ = left(stage)
    restore(stage, order)
    bell = stage.live.wake_many([tx_id], only_due=False)[0]
    assert isinstance(bell, Bell)
    stage.claimed(bell)
    with stage.nothing_changes():
        assert restore(stage, order) == Refused(tx_id, "NEWER", stage.version(tx_id))


def test_versions_are_compared_as_numbers(stage: Stage) -> None:
    stage.clock.advance(seconds=-stage.now_ms / 1_000 + 0.02)
    claim = stage.claimed()
    assert len(stage.version(claim.tx_id)) == 2
    order = stage.as_sql_has_it(claim.tx_id, stage.view(claim.tx_id))
    with stage.nothing_changes():
        assert restore(stage, replace(order, version=9, node=NODE)) == Refused(
            claim.tx_id, "NEWER", stage.version(claim.tx_id)
        )


def test_one_that_was_lost_while_it_ran_is_queued_again_as_a_change_of_its_own(
    stage: Stage,
) -> None:
    claim = stage.claimed()
    before = stage.version(claim.tx_id)
    order = lost(stage, claim)
    stage.lose(claim.tx_id)
    bell = restore(stage, order)
    assert bell == Bell(claim.tx_id, stage.now_ms // 1_000, "master", STEP, "p/0", "out")
    fields = stage.fields(claim.tx_id)
    assert fields["version"] == fields["jsonVersion"] == str(stage.now_ms)
    entry = stage.entries(claim.tx_id)[-1]
    assert (entry.kind, entry.before, entry.extra) == ("rebuild", int(before), "queued")
    assert entry.fence == int(fields["fence"]) == stage.now_ms
    assert stage.score(claim.tx_id, "queuedZ") == stage.now_ms
    assert stage.score(claim.tx_id, "toArchiveZ") is None


def test_the_worker_of_before_is_refused(stage: Stage) -> None:
    claim = stage.claimed()
    order = lost(stage, claim)
    stage.lose(claim.tx_id)
    bell = restore(stage, order)
    assert isinstance(bell, Bell)
    again = stage.claimed(bell, node=OTHER_NODE)
    assert again.fence == order.fence + 1
    with stage.nothing_changes():
        assert stage.checkpoint(claim) == ["STALE", "running"]


@pytest.mark.parametrize("node", [NODE, ""])
def test_an_older_version_gives_way_if_it_is_where_it_was_seen(stage: Stage, node: str) -> None:
    claim = stage.claimed()
    if not node:
        stage.handed_over(claim)
    before = stage.fields(claim.tx_id)
    stage.live.set_switch(claim.tx_id, "kyc", "1")
    order = replace(lost(stage, claim), node=node)
    # Redis falls back to what it was before the switch.
    stage.redis.delete(stage.live.keys.state(claim.tx_id))
    pairs = [part for pair in before.items() for part in pair]
    stage.redis.hset(stage.live.keys.state(claim.tx_id), items=pairs)
    for wrong in {NODE, OTHER_NODE, ""} - {node}:
        with stage.nothing_changes():
            refused = restore(stage, replace(order, node=wrong))
            assert refused == Refused(claim.tx_id, "MOVED", node)
    assert isinstance(restore(stage, order), Bell)
    assert stage.live.running_on(NODE) == []
    fields = stage.fields(claim.tx_id)
    assert (fields["status"], fields["fence"]) == ("queued", str(order.fence))
    assert int(fields["version"]) > order.version > int(before["version"])
    assert fields["switch:kyc"] == "1:1"
    assert stage.deltas(claim.tx_id) == []


@pytest.mark.parametrize("status", ["sleeping", "in-doubt"])
def test_what_rests_is_put_back_where_it_rested(stage: Stage, status: str) -> None:
    if status == "sleeping":
        claim, where = asleep(stage), "sleepingZ"
    else:
        claim, where = stage.claimed(begin=""), "exceptionZ"
        call = stage.live.call_park(stage.holding_nothing_new(claim), NODE, STATE_JSON, "why")
        stage.live.run([call])
    score, view = stage.score(claim.tx_id, where), stage.view(claim.tx_id)
    order = stage.as_sql_has_it(claim.tx_id, stage.folded(claim.tx_id))
    stage.lose(claim.tx_id)
    assert isinstance(restore(stage, order), Bell)
    assert stage.score(claim.tx_id, where) == score
    assert stage.score(claim.tx_id, "toArchiveZ") == stage.now_ms
    assert stage.view(claim.tx_id) == view


def test_many_come_back_in_one_round_trip(stage: Stage) -> None:
    orders = [left(stage)[1] for _ in range(5)]
    restore(stage, orders[0])
    before = stage.live.round_trips
    answers = stage.live.restore_many(orders)
    assert stage.live.round_trips == before + 1
    assert [isinstance(answer, Bell) for answer in answers] == [False, *[True] * 4]


def test_an_end_in_sql_takes_a_sleeper_that_has_left_off_the_list(stage: Stage) -> None:
    tx_id, _, _ = left(stage)
    assert stage.score(tx_id, "sleepingZ") is not None
    stage.live.follow_sql([(tx_id, "expired")])
    assert stage.score(tx_id, "sleepingZ") is None
    assert stage.status(tx_id) == "gone"


def test_one_that_was_read_too_long_ago_is_not_brought_back(stage: Stage) -> None:
    """Something newer may have come and left since."""
    claim = stage.sleeping()
    back = stage.as_sql_has_it(claim.tx_id, stage.view(claim.tx_id))
    stage.redis.delete(stage.live.keys.state(claim.tx_id))
    with stage.nothing_changes():
        late = stage.live.restore_many([replace(back, until_ms=stage.now_ms)])
        assert late == [Refused(claim.tx_id, "LATE", str(stage.now_ms))]
    [bell] = stage.live.restore_many([replace(back, until_ms=stage.now_ms + 1)])
    assert isinstance(bell, Bell)
