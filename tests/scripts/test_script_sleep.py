"""sleep.lua and wake.lua: to rest, and to be called back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datp_tasks.live.types import Bell, Claimed, Refused
from datp_tasks.model.stop_request import StopRequest
from tests.scripts.live_states import NODE, OTHER_NODE, STEP, Stage


def test_a_sleeping_transaction_is_due_for_the_archive_and_for_its_wake_time(
    stage: Stage,
) -> None:
    claim = stage.claimed()
    wake_ms = stage.now_ms + 90_000
    version = str(stage.now_ms + 1)
    reply = stage.sleep(claim, sleep_ms=90_000, json='{"asleep":1}')
    assert reply == ["OK", str(wake_ms), version]
    fields = stage.fields(claim.tx_id)
    assert (fields["status"], fields["wakeTime"]) == ("sleeping", str(wake_ms))
    assert (fields["state"], fields["jsonVersion"]) == ('{"asleep":1}', version)
    assert fields["version"] == version
    assert stage.deltas(claim.tx_id) == []
    assert stage.score(claim.tx_id, "sleepingZ") == wake_ms
    assert stage.score(claim.tx_id, "toArchiveZ") == stage.now_ms
    assert stage.live.running_on(NODE) == []


def test_falling_asleep_twice_changes_nothing_more(stage: Stage) -> None:
    claim = stage.sleeping()
    with stage.nothing_changes():
        assert stage.sleep(claim) == ["STALE", "sleeping"]


def test_a_switch_that_was_set_since_the_step_looked_keeps_it_awake(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "kyc", "true")
    with stage.nothing_changes():
        word, flat = stage.sleep(claim, switch="kyc", seen=0)
    assert word == "AWAKE"
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    assert fields["switch:kyc"] == "1:true"
    assert fields["state"] == ""


def test_a_switch_that_the_step_has_seen_does_not_keep_it_awake(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "kyc", "false")
    assert stage.sleep(claim, switch="kyc", seen=1)[0] == "OK"
    assert stage.fields(claim.tx_id)["wakeSwitch"] == "kyc"


def test_another_switch_does_not_keep_it_awake(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "other", "true")
    assert stage.sleep(claim, switch="kyc", seen=0)[0] == "OK"


def test_switch_sequences_are_compared_as_numbers(stage: Stage) -> None:
    claim = stage.claimed()
    for n in range(10):
        stage.live.set_switch(claim.tx_id, "kyc", str(n))
    assert stage.sleep(claim, switch="kyc", seen=9)[0] == "AWAKE"


def test_a_plain_sleep_ignores_switches(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "kyc", "true")
    assert stage.sleep(claim)[0] == "OK"
    assert "wakeSwitch" not in stage.fields(claim.tx_id)


def test_a_cancel_keeps_it_awake(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    with stage.nothing_changes():
        assert stage.sleep(claim) == ["CANCEL", "cancelled:enough"]


def test_one_that_is_being_rolled_back_may_sleep_despite_its_cancel(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert stage.sleep(claim, heed_cancel=False)[0] == "OK"


def test_the_next_sleep_forgets_the_switch_of_the_last_one(stage: Stage) -> None:
    claim = stage.sleeping(switch="kyc")
    bell = stage.live.set_switch(claim.tx_id, "kyc", "true")
    assert isinstance(bell, Bell)
    stage.sleeping(stage.claimed(bell))
    assert "wakeSwitch" not in stage.fields(claim.tx_id)


def test_a_due_transaction_is_woken_with_a_bell(stage: Stage) -> None:
    claim = stage.sleeping(sleep_ms=5_000, switch="kyc")
    stage.clock.advance(seconds=5)
    bell = Bell(claim.tx_id, 2, "master", STEP, "p/0", "out")
    assert stage.live.wake_many([claim.tx_id], only_due=True) == [bell]
    fields = stage.fields(claim.tx_id)
    assert fields["status"] == "queued"
    assert not {"wakeTime", "wakeSwitch"} & fields.keys()
    assert stage.score(claim.tx_id, "queuedZ") == stage.now_ms
    assert stage.score(claim.tx_id, "sleepingZ") is None
    assert stage.score(claim.tx_id, "toArchiveZ") is None


def test_one_that_is_not_due_sleeps_on(stage: Stage) -> None:
    claim = stage.sleeping(sleep_ms=5_000)
    wake_ms = stage.now_ms + 5_000
    stage.clock.advance(seconds=4.999)
    with stage.nothing_changes():
        answers = stage.live.wake_many([claim.tx_id], only_due=True)
    assert answers == [Refused(claim.tx_id, "NOT_DUE", str(wake_ms))]


def test_somebody_can_wake_it_before_its_time(stage: Stage) -> None:
    claim = stage.sleeping(sleep_ms=5_000)
    assert isinstance(stage.live.wake_many([claim.tx_id], only_due=False)[0], Bell)


def test_waking_twice_gives_one_bell(stage: Stage) -> None:
    claim = stage.sleeping(sleep_ms=0)
    first, second = stage.live.wake_many([claim.tx_id, claim.tx_id], only_due=True)
    assert isinstance(first, Bell)
    assert second == Refused(claim.tx_id, "NOT_SLEEPING", "queued")


def test_the_sleeper_finds_what_is_due_and_nothing_else(stage: Stage) -> None:
    soon = stage.sleeping(sleep_ms=1_000)
    stage.sleeping(sleep_ms=9_000)
    assert stage.live.due("sleepingZ", batch_max=10) == []
    stage.clock.advance(seconds=1)
    assert stage.live.due("sleepingZ", batch_max=10) == [soon.tx_id]


@pytest.mark.parametrize(
    ("reach", "status"),
    [
        (Stage.claimed, "running"),
        (Stage.taken_over, "queued"),
        (Stage.parked, "in-doubt"),
        (Stage.finished, "success"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_does_not_sleep_is_not_woken(
    stage: Stage, reach: Callable[[Stage], Claimed], status: str
) -> None:
    claim = reach(stage)
    with stage.nothing_changes():
        answers = stage.live.wake_many([claim.tx_id], only_due=False)
    assert answers == [Refused(claim.tx_id, "NOT_SLEEPING", status)]


def test_one_whose_state_has_left_is_found_until_it_was_brought_back(stage: Stage) -> None:
    claim = stage.sleeping(sleep_ms=10**9)
    stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id))])
    stage.redis.delete(stage.live.keys.state(claim.tx_id))
    stage.clock.advance(seconds=10**6)
    for only_due in (True, False):
        with stage.nothing_changes():
            answers = stage.live.wake_many([claim.tx_id], only_due=only_due)
        assert answers == [Refused(claim.tx_id, "UNKNOWN", "")]
    assert stage.live.due("sleepingZ", batch_max=10) == [claim.tx_id]
