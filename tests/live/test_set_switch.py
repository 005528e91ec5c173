"""set_switch.lua: values from outside."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datp_tasks.live import store
from datp_tasks.live.live_types import Bell, Claimed, Refused, switches_of
from tests.support.live_states import OTHER_NODE, STEP, Stage


def test_a_switch_wakes_the_transaction_that_waits_for_it(stage: Stage) -> None:
    claim = stage.sleeping(switch="kyc")
    bell = Bell(claim.tx_id, 2, "master", STEP, "p/0", "out")
    assert stage.live.set_switch(claim.tx_id, "kyc", '"yes"') == bell
    fields = stage.fields(claim.tx_id)
    assert fields["status"] == "queued"
    assert switches_of(fields) == {"kyc": '"yes"'}
    assert stage.score(claim.tx_id, "queuedZ") == stage.now_ms
    assert stage.score(claim.tx_id, "sleepingZ") is None
    # It was due when it fell asleep; what is queued is written soon by its worker.
    assert stage.score(claim.tx_id, "toArchiveZ") is None


def test_another_switch_lets_it_sleep_on(stage: Stage) -> None:
    claim = stage.sleeping(switch="kyc")
    assert stage.live.set_switch(claim.tx_id, "other", "1") == Refused(claim.tx_id, "SET", "1")
    assert stage.status(claim.tx_id) == "sleeping"


def test_a_switch_does_not_end_a_plain_sleep(stage: Stage) -> None:
    claim = stage.sleeping()
    assert stage.live.set_switch(claim.tx_id, "kyc", "1") == Refused(claim.tx_id, "SET", "1")
    assert stage.status(claim.tx_id) == "sleeping"


@pytest.mark.parametrize(
    "reach",
    [Stage.claimed, Stage.taken_over, Stage.parked],
    ids=lambda reach: reach.__name__,
)
def test_a_switch_can_be_set_before_the_transaction_waits_for_it(
    stage: Stage, reach: Callable[[Stage], Claimed]
) -> None:
    claim = reach(stage)
    status = stage.status(claim.tx_id)
    assert stage.live.set_switch(claim.tx_id, "kyc", "true") == Refused(claim.tx_id, "SET", "1")
    assert stage.status(claim.tx_id) == status
    assert switches_of(stage.fields(claim.tx_id)) == {"kyc": "true"}


def test_the_same_value_again_changes_nothing(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "kyc", "true")
    with stage.nothing_changes():
        answer = stage.live.set_switch(claim.tx_id, "kyc", "true")
    assert answer == Refused(claim.tx_id, "NO_CHANGE", "")


def test_the_value_it_has_already_does_not_wake_it(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "kyc", "false")
    stage.sleep(claim, switch="kyc", seen=1)
    with stage.nothing_changes():
        assert stage.live.set_switch(claim.tx_id, "kyc", "false") == Refused(
            claim.tx_id, "NO_CHANGE", ""
        )
    assert isinstance(stage.live.set_switch(claim.tx_id, "kyc", "true"), Bell)


@pytest.mark.parametrize(
    "value",
    ["true", "9007199254740993", "0.10", '"12:34"', '"%d:"', '"é😀"', '""', "1e-7", '"a\\nb"'],
)
def test_values_come_back_as_they_were_given(stage: Stage, value: str) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "s", value)
    assert switches_of(stage.fields(claim.tx_id)) == {"s": value}
    assert stage.live.set_switch(claim.tx_id, "s", value) == Refused(claim.tx_id, "NO_CHANGE", "")


def test_a_removed_switch_is_gone_and_setting_it_again_is_new(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "kyc", "true")
    assert stage.live.set_switch(claim.tx_id, "kyc", "") == Refused(claim.tx_id, "SET", "2")
    assert switches_of(stage.fields(claim.tx_id)) == {}
    assert stage.live.set_switch(claim.tx_id, "kyc", "true") == Refused(claim.tx_id, "SET", "3")


def test_removing_what_was_never_set_changes_nothing(stage: Stage) -> None:
    claim = stage.claimed()
    with stage.nothing_changes():
        answer = stage.live.set_switch(claim.tx_id, "kyc", "")
    assert answer == Refused(claim.tx_id, "NO_CHANGE", "")


def test_there_is_a_limit_of_different_switches(stage: Stage) -> None:
    claim = stage.claimed()
    limit = store.SWITCHES_MAX
    for n in range(limit):
        assert stage.live.set_switch(claim.tx_id, f"s{n}", "1") == Refused(
            claim.tx_id, "SET", str(n + 1)
        )
    with stage.nothing_changes():
        answer = stage.live.set_switch(claim.tx_id, "one-more", "1")
    assert answer == Refused(claim.tx_id, "TOO_MANY", str(limit))
    assert stage.live.set_switch(claim.tx_id, "s0", "2") == Refused(
        claim.tx_id, "SET", str(limit + 1)
    )


@pytest.mark.parametrize(
    "reach", [Stage.finished, Stage.archived], ids=lambda reach: reach.__name__
)
def test_what_has_ended_takes_no_switch(stage: Stage, reach: Callable[[Stage], Claimed]) -> None:
    claim = reach(stage)
    with stage.nothing_changes():
        answer = stage.live.set_switch(claim.tx_id, "kyc", "1")
    assert answer == Refused(claim.tx_id, "FINAL", "success")


def test_a_switch_of_an_unknown_transaction_makes_nothing(stage: Stage) -> None:
    tx_id = stage.new().tx_id
    with stage.nothing_changes():
        assert stage.live.set_switch(tx_id, "kyc", "1") == Refused(tx_id, "UNKNOWN", "")


def test_a_switch_that_is_set_while_it_sleeps_makes_it_due_for_the_archive_again(
    stage: Stage,
) -> None:
    claim = stage.sleeping()
    stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id), "")])
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    stage.live.set_switch(claim.tx_id, "kyc", "1")
    assert stage.score(claim.tx_id, "toArchiveZ") == stage.now_ms


def test_a_step_sets_a_switch_of_the_claim_it_runs_under(stage: Stage) -> None:
    claim = stage.claimed()
    answer = stage.live.set_switch(claim.tx_id, "kyc", "true", fence=claim.fence)
    assert answer == Refused(claim.tx_id, "SET", "1")
    assert stage.fields(claim.tx_id)["switch:kyc"] == "1:true"


def test_a_step_of_a_claim_that_was_lost_sets_nothing(stage: Stage) -> None:
    """It was taken over, and may be with another worker, asleep, or parked by now."""
    lost = [(stage.taken_over(), "queued"), (stage.sleeping(), "sleeping")]
    lost.append((stage.parked(), "in-doubt"))
    claim, bell = stage.handed_over()
    stage.claimed(bell, node=OTHER_NODE)
    stage.clock.advance(seconds=1)
    lost.append((claim, "running"))
    with stage.nothing_changes():
        for old, status in lost:
            answer = stage.live.set_switch(old.tx_id, "kyc", "true", fence=old.fence)
            assert answer == Refused(old.tx_id, "STALE", status)


def test_one_that_is_not_as_it_was_seen_gets_no_switch(stage: Stage) -> None:
    claim = stage.claimed()
    for seen in (f"sleeping:{claim.fence}", f"running:{claim.fence - 1}"):
        with stage.nothing_changes():
            answer = stage.live.set_switch(claim.tx_id, "kyc", "true", seen=seen)
        assert answer == Refused(claim.tx_id, "MOVED", "running")
    answer = stage.live.set_switch(claim.tx_id, "kyc", "true", seen=f"running:{claim.fence}")
    assert answer == Refused(claim.tx_id, "SET", "1")
