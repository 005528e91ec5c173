"""park.lua: a transaction waits for a decision by a person."""

from __future__ import annotations

from tests.support.live_states import NODE, Stage


def test_a_parked_transaction_waits_for_the_operator_to_decide(stage: Stage) -> None:
    claim = stage.claimed()
    assert stage.park(claim, json='{"doubt":1}') == ["OK", str(stage.now_ms + 1)]
    fields = stage.fields(claim.tx_id)
    assert (fields["status"], fields["problem"]) == ("in-doubt", "who knows")
    assert fields["state"] == '{"doubt":1}'
    assert stage.score(claim.tx_id, "exceptionZ") == stage.now_ms
    assert stage.score(claim.tx_id, "toArchiveZ") == stage.now_ms
    assert stage.live.running_on(NODE) == []


def test_parking_twice_changes_nothing_more(stage: Stage) -> None:
    claim = stage.parked()
    with stage.nothing_changes():
        assert stage.park(claim) == ["STALE", "in-doubt"]


def test_parking_is_told_to_those_who_wait(stage: Stage) -> None:
    with stage.news() as news:
        claim = stage.parked()
        assert news() == f"parked:{claim.tx_id}:in-doubt"
