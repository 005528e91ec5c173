"""sleep.lua: a transaction goes to rest."""

from __future__ import annotations

from datp_tasks.live.live_types import Bell
from datp_tasks.model.stop_request import StopRequest
from tests.support.live_states import NODE, OTHER_NODE, Stage


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
        assert stage.sleep(claim) == ["STOP", "cancelled:enough"]


def test_one_that_is_being_rolled_back_may_sleep_despite_its_cancel(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert stage.sleep(claim, heed_stop=False)[0] == "OK"


def test_the_next_sleep_forgets_the_switch_of_the_last_one(stage: Stage) -> None:
    claim = stage.sleeping(switch="kyc")
    bell = stage.live.set_switch(claim.tx_id, "kyc", "true")
    assert isinstance(bell, Bell)
    stage.sleeping(stage.claimed(bell))
    assert "wakeSwitch" not in stage.fields(claim.tx_id)
