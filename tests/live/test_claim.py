"""claim.lua: the one door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from datp_tasks.live.live_types import Bell, Claimed, NewTransaction, Refused, switches_of
from datp_tasks.model.journal import Entry
from tests.support.live_states import NODE, OPENS, OTHER_NODE, STATE_JSON, STEP, Stage


def knock(stage: Stage, tx_id: str, sequence: int) -> Claimed | Refused:
    return stage.live.claim_many([(tx_id, sequence)], OTHER_NODE, step_type=STEP, begin=OPENS)[0]


def test_a_queued_transaction_runs_on_the_node_that_claims_it(stage: Stage) -> None:
    bell = stage.queued()
    before = stage.fields(bell.tx_id)
    claim = stage.claimed(bell, begin="")
    fields = stage.fields(claim.tx_id)
    assert (fields["status"], fields["node"], fields["fence"]) == (
        "running",
        NODE,
        str(claim.fence),
    )
    assert claim.fields == before
    assert stage.score(claim.tx_id, "queuedZ") is None
    assert stage.score(claim.tx_id, "processingZ") == stage.now_ms
    assert stage.live.running_on(NODE) == [claim.tx_id]


def plain(stage: Stage) -> NewTransaction:
    """With no field that only some have."""
    return replace(stage.new(), metadata_json=None)


def claim_of(stage: Stage, new: NewTransaction) -> Claimed:
    stage.live.create_many([new])
    claim = stage.live.claim_many([(new.tx_id, 1)], NODE, step_type=STEP, begin=OPENS)[0]
    assert isinstance(claim, Claimed)
    return claim


def test_of_a_new_one_that_has_nothing_special_only_the_needed_fields_are_sent(
    stage: Stage,
) -> None:
    new = plain(stage)
    claim = claim_of(stage, new)
    needed = ("owner", "group", "pipeline", "stepType", "place", "state")
    assert claim.fields == {name: new.fields()[name] for name in needed}
    assert (claim.opened, claim.deltas) == (True, [])
    assert stage.deltas(new.tx_id) == [OPENS]
    assert stage.fields(new.tx_id)["node"] == NODE


@pytest.mark.parametrize(
    "special",
    [
        {"metadata_json": "{}"},
        {"external_id": "e-1"},
        {"expires_at_ms": 10**15},
        {"trace": "00-1-2-01"},
        {"fence": 5},
        {"recreated": True},
    ],
)
def test_of_a_new_one_with_anything_special_all_fields_are_sent(
    stage: Stage, special: dict[str, Any]
) -> None:
    new = replace(plain(stage), **special)
    assert claim_of(stage, new).fields.items() >= new.fields().items()


def test_what_came_before_the_first_claim_is_sent(stage: Stage) -> None:
    new = plain(stage)
    stage.live.create_many([new])
    stage.live.set_switch(new.tx_id, "kyc", "true")
    claim = stage.live.claim_many([(new.tx_id, 1)], NODE, step_type=STEP, begin=OPENS)[0]
    assert isinstance(claim, Claimed)
    assert switches_of(claim.fields) == {"kyc": "true"}


def test_a_doubled_bell_finds_the_door_shut(stage: Stage) -> None:
    bell = stage.queued()
    stage.claimed(bell)
    with stage.nothing_changes():
        answer = knock(stage, bell.tx_id, bell.sequence)
    assert answer == Refused(bell.tx_id, "NOT_QUEUED", "running")


def test_the_second_of_two_bells_in_one_call_is_refused(stage: Stage) -> None:
    bell = stage.queued()
    pair = (bell.tx_id, bell.sequence)
    first, second = stage.live.claim_many([pair, pair], NODE, step_type=STEP, begin=OPENS)
    assert isinstance(first, Claimed)
    assert second == Refused(bell.tx_id, "NOT_QUEUED", "running")


@pytest.mark.parametrize("sequence", [0, 1, 3, 10**18, -1])
def test_an_old_or_forged_bell_is_refused(stage: Stage, sequence: int) -> None:
    _, bell = stage.handed_over()
    assert bell.sequence == 2
    with stage.nothing_changes():
        assert knock(stage, bell.tx_id, sequence) == Refused(bell.tx_id, "OLD_BELL", "2")


@pytest.mark.parametrize(
    ("reach", "status"),
    [
        (Stage.claimed, "running"),
        (Stage.sleeping, "sleeping"),
        (Stage.parked, "in-doubt"),
        (Stage.finished, "success"),
        (Stage.archived, "success"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_is_not_queued_cannot_be_claimed(
    stage: Stage, reach: Callable[[Stage], Claimed], status: str
) -> None:
    claim = reach(stage)
    with stage.nothing_changes():
        assert knock(stage, claim.tx_id, 1) == Refused(claim.tx_id, "NOT_QUEUED", status)


def test_a_bell_for_an_unknown_transaction_takes_it_off_the_queue(stage: Stage) -> None:
    bell = stage.queued()
    stage.redis.delete(stage.live.keys.state(bell.tx_id))
    stage.redis.delete(stage.live.keys.of_tx(bell.tx_id, "countsH"))
    assert knock(stage, bell.tx_id, 1) == Refused(bell.tx_id, "UNKNOWN", "")
    assert stage.picture() == {}


def test_a_claim_opens_the_step_that_the_bell_is_for(stage: Stage) -> None:
    claim = stage.claimed(begin=OPENS)
    assert claim.opened
    assert claim.deltas == []
    assert stage.deltas(claim.tx_id) == [OPENS]
    fields = stage.fields(claim.tx_id)
    assert (fields["version"], fields["jsonVersion"]) == (str(stage.now_ms), "0")
    assert fields["begun"] == "1"


def test_a_claim_does_not_open_a_step_of_another_type(stage: Stage) -> None:
    bell = stage.queued()
    pair = (bell.tx_id, bell.sequence)
    claim = stage.live.claim_many([pair], NODE, step_type="t/other", begin=OPENS)[0]
    assert isinstance(claim, Claimed)
    assert not claim.opened
    assert stage.deltas(bell.tx_id) == []
    assert "begun" not in stage.fields(bell.tx_id)


def test_a_claim_without_an_opening_delta_opens_nothing(stage: Stage) -> None:
    claim = stage.claimed(begin="")
    assert not claim.opened
    assert "begun" not in stage.fields(claim.tx_id)


def test_the_next_claim_is_told_what_the_lost_worker_had_written(stage: Stage) -> None:
    first = stage.claimed()
    stage.checkpoint(first)
    stage.taken_over(first)
    again = knock(stage, first.tx_id, 2)
    assert isinstance(again, Claimed)
    assert again.deltas == [OPENS, '{"k":"done"}', '{"k":"crash"}']
    assert stage.deltas(first.tx_id) == [*again.deltas, OPENS]


def test_the_json_is_not_sent_to_a_worker_that_holds_that_version(stage: Stage) -> None:
    claim, bell = stage.handed_over()
    assert stage.version(claim.tx_id) == str(stage.now_ms + 1)
    pair = (bell.tx_id, bell.sequence)
    held = {bell.tx_id: f"{stage.now_ms + 1}/{claim.fence}"}
    again = stage.live.claim_many([pair], NODE, held=held)[0]
    assert isinstance(again, Claimed)
    assert again.fields["state"] == ""
    assert stage.fields(bell.tx_id)["state"] == STATE_JSON


@pytest.mark.parametrize("version_off", [-1, 0, 2, 1_000])
@pytest.mark.parametrize("fence_off", [-1, 0, 1])
def test_the_json_is_sent_to_a_worker_that_holds_another_writing_of_it(
    stage: Stage, version_off: int, fence_off: int
) -> None:
    claim, bell = stage.handed_over()
    pair = (bell.tx_id, bell.sequence)
    held = {bell.tx_id: f"{stage.now_ms + version_off}/{claim.fence + fence_off}"}
    again = stage.live.claim_many([pair], NODE, held=held)[0]
    assert isinstance(again, Claimed)
    assert again.fields["state"] == STATE_JSON


@pytest.mark.parametrize("fence_off", [-1, 1])
def test_the_right_version_of_another_claim_is_another_writing(
    stage: Stage, fence_off: int
) -> None:
    claim, bell = stage.handed_over()
    held = {bell.tx_id: f"{stage.version(bell.tx_id)}/{claim.fence + fence_off}"}
    again = stage.live.claim_many([(bell.tx_id, bell.sequence)], NODE, held=held)[0]
    assert isinstance(again, Claimed)
    assert again.fields["state"] == STATE_JSON


def test_a_worker_that_holds_the_json_is_told_of_the_deltas_since(stage: Stage) -> None:
    claim, bell = stage.handed_over()
    written = stage.version(bell.tx_id)
    again = stage.claimed(bell)
    order = (claim.tx_id, again.fence, again.fence + 1)
    bell_after_crash = stage.live.take_over_many([order], NODE)[0]
    assert isinstance(bell_after_crash, Bell)
    pair = (bell.tx_id, bell_after_crash.sequence)
    held = {bell.tx_id: f"{written}/{again.fence + 1}"}
    third = stage.live.claim_many([pair], NODE, held=held)[0]
    assert isinstance(third, Claimed)
    assert third.fields["state"] == ""
    assert third.deltas == [OPENS, '{"k":"crash"}']


@pytest.mark.parametrize("begin", ["", OPENS])
def test_every_claim_has_a_version_of_its_own(stage: Stage, begin: str) -> None:
    bell = stage.queued()
    claim = stage.claimed(bell, begin=begin)
    assert stage.version(bell.tx_id) == str(stage.now_ms)
    assert stage.entries(bell.tx_id) == [Entry(stage.now_ms, 0, claim.fence, "claim", begin, NODE)]


def test_a_problem_is_over_once_a_worker_claims_the_transaction(stage: Stage) -> None:
    bell = stage.queued()
    stage.live.note_problems([(bell.tx_id, bell.sequence)], "no worker offers the step")
    stage.claimed(bell)
    assert "problem" not in stage.fields(bell.tx_id)
