"""hand_over.lua: a worker gives a transaction to the next place."""

from __future__ import annotations

from tests.support.live_states import HERE, NODE, THERE, Stage


def test_a_transaction_that_is_handed_over_waits_for_its_next_bell(stage: Stage) -> None:
    claim = stage.claimed()
    stage.clock.advance(seconds=1)
    assert stage.hand_over(claim, to=THERE, json='{"new":1}') == ["OK", 2, str(stage.now_ms)]
    fields = stage.fields(claim.tx_id)
    assert fields["status"] == "queued"
    assert (fields["group"], fields["stepType"]) == ("payments", "t/pay")
    assert (fields["place"], fields["priority"]) == ("p/1", "out")
    assert "node" not in fields
    assert stage.score(claim.tx_id, "queuedZ") == stage.now_ms
    assert stage.score(claim.tx_id, "processingZ") is None
    assert stage.live.running_on(NODE) == []


def test_a_full_json_replaces_the_deltas_that_led_to_it(stage: Stage) -> None:
    claim = stage.claimed()
    stage.checkpoint(claim)
    stage.hand_over(claim, json='{"new":1}')
    fields = stage.fields(claim.tx_id)
    assert stage.deltas(claim.tx_id) == []
    assert fields["state"] == '{"new":1}'
    assert fields["version"] == fields["jsonVersion"] == str(stage.now_ms + 2)


def test_handing_over_twice_changes_nothing_more(stage: Stage) -> None:
    claim, _ = stage.handed_over()
    with stage.nothing_changes():
        assert stage.hand_over(claim) == ["STALE", "queued"]


def test_the_priority_of_a_transaction_is_kept_until_it_is_placed_anew(stage: Stage) -> None:
    bell = stage.queued()
    assert stage.live.ring_again_many([bell.tx_id]) == [bell]
    claim = stage.claimed(bell)
    stage.checkpoint(claim)
    assert stage.fields(bell.tx_id)["priority"] == bell.priority == "in"
    stage.hand_over(claim, to=HERE)
    assert stage.fields(bell.tx_id)["priority"] == "out"
