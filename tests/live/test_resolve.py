"""resolve.lua: out of doubt."""

from __future__ import annotations

from datp_tasks.live.live_types import Bell, Held, Refused
from datp_tasks.model.state import CLOSE, delta_json
from tests.support.live_states import (
    HERE,
    STATE_JSON,
    STEP,
    THERE,
    Stage,
    held,
)


def test_one_in_doubt_is_queued_with_what_was_decided(stage: Stage) -> None:
    claim = stage.parked()
    tx_id, version = claim.tx_id, int(stage.version(claim.tx_id))
    order = Held(tx_id, claim.fence + 5, (CLOSE,))
    stage.clock.advance(seconds=1)
    bell = stage.live.resolve(order, version, '{"decided":1}', THERE)
    assert bell == Bell(tx_id, 2, "payments", "t/pay", "p/1", "out")
    fields = stage.fields(tx_id)
    assert (fields["status"], fields["state"]) == ("queued", '{"decided":1}')
    assert fields["version"] == fields["jsonVersion"] == str(stage.now_ms)
    assert fields["fence"] == str(claim.fence + 5)
    assert "problem" not in fields
    assert stage.score(tx_id, "exceptionZ") is stage.score(tx_id, "toArchiveZ") is None
    assert stage.score(tx_id, "queuedZ") == stage.now_ms
    entry = stage.entries(tx_id)[-1]
    assert (entry.kind, entry.before, entry.lines) == ("queue", version, delta_json(CLOSE))


def test_without_a_place_it_goes_on_where_it_stood(stage: Stage) -> None:
    claim = stage.parked()
    version = int(stage.version(claim.tx_id))
    bell = stage.live.resolve(Held(claim.tx_id, claim.fence), version, STATE_JSON, None)
    assert bell == Bell(claim.tx_id, 2, "master", STEP, "p/0", "in")


def test_two_decisions_about_one_doubt_give_one(stage: Stage) -> None:
    claim = stage.parked()
    version = int(stage.version(claim.tx_id))
    stage.live.resolve(held(claim), version, STATE_JSON, HERE)
    with stage.nothing_changes():
        answer = stage.live.resolve(held(claim), version, "{}", HERE)
    assert answer == Refused(claim.tx_id, "NOT_PARKED", "queued")


def test_a_decision_on_what_was_there_before_is_refused(stage: Stage) -> None:
    claim = stage.parked()
    version = int(stage.version(claim.tx_id))
    stage.live.set_switch(claim.tx_id, "kyc", "1")
    with stage.nothing_changes():
        answer = stage.live.resolve(held(claim), version, "{}", HERE)
    assert answer == Refused(claim.tx_id, "CHANGED", stage.version(claim.tx_id))


def test_one_that_is_not_here_cannot_be_decided_about(stage: Stage) -> None:
    tx_id = stage.new().tx_id
    with stage.nothing_changes():
        answer = stage.live.resolve(Held(tx_id, 1), 1, "{}", HERE)
    assert answer == Refused(tx_id, "NOT_PARKED", "UNKNOWN")
