"""stop.lua: stopping a transaction, in each status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from datp_tasks.live.live_types import Bell, Claimed, Refused
from datp_tasks.model.stop_request import StopRequest
from tests.support.live_states import NODE, OTHER_NODE, STATE_JSON, STEP, Stage


def test_one_that_has_not_begun_is_the_callers_at_once(stage: Stage) -> None:
    bell = stage.queued()
    seized = stage.live.stop(bell.tx_id, StopRequest.cancel("enough"), NODE)
    assert isinstance(seized, Claimed)
    fields = stage.fields(bell.tx_id)
    assert seized.fields == fields
    assert (fields["status"], fields["node"], fields["cancel"]) == (
        "running",
        NODE,
        "cancelled:enough",
    )
    assert fields["state"] == STATE_JSON
    assert stage.live.running_on(NODE) == [bell.tx_id]
    assert stage.score(bell.tx_id, "queuedZ") is None
    assert stage.finish(seized, "cancelled")[0] == "OK"
    assert stage.status(bell.tx_id) == "cancelled"


def test_its_bell_finds_the_door_shut(stage: Stage) -> None:
    bell = stage.queued()
    stage.live.stop(bell.tx_id, StopRequest.cancel("enough"), NODE)
    answer = stage.live.claim_many([(bell.tx_id, bell.sequence)], OTHER_NODE)[0]
    assert answer == Refused(bell.tx_id, "NOT_QUEUED", "running")


def test_a_problem_is_over_once_the_caller_has_it(stage: Stage) -> None:
    bell = stage.queued()
    stage.live.note_problems([(bell.tx_id, bell.sequence)], "no worker offers the step")
    seized = stage.live.stop(bell.tx_id, StopRequest.cancel("enough"), NODE)
    assert isinstance(seized, Claimed)
    assert "problem" not in seized.fields


def test_a_sleeping_one_that_has_not_begun_is_the_callers_at_once(stage: Stage) -> None:
    claim = stage.sleeping(stage.claimed(begin=""), switch="kyc")
    seized = stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert isinstance(seized, Claimed)
    assert not {"wakeTime", "wakeSwitch"} & stage.fields(claim.tx_id).keys()
    assert stage.score(claim.tx_id, "sleepingZ") is None
    assert stage.score(claim.tx_id, "toArchiveZ") is None


def test_a_queued_one_that_has_begun_is_rolled_back_by_a_worker(stage: Stage) -> None:
    claim, bell = stage.handed_over()
    answer = stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert answer == Refused(claim.tx_id, "ASKED", "queued")
    assert stage.claimed(bell).fields["cancel"] == "cancelled:enough"


def test_a_sleeping_one_that_has_begun_is_queued_for_its_rollback(stage: Stage) -> None:
    claim = stage.sleeping(switch="kyc")
    bell = Bell(claim.tx_id, 2, "master", STEP, "p/0", "out")
    assert stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE) == bell
    assert stage.status(claim.tx_id) == "queued"
    assert stage.score(claim.tx_id, "sleepingZ") is None
    assert stage.score(claim.tx_id, "toArchiveZ") is None
    assert stage.claimed(bell).fields["cancel"] == "cancelled:enough"


def test_a_running_one_is_asked(stage: Stage) -> None:
    claim = stage.claimed(begin="")
    answer = stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert answer == Refused(claim.tx_id, "ASKED", "running")
    assert stage.fields(claim.tx_id)["node"] == NODE
    assert stage.checkpoint(claim)[1] == "cancelled:enough"


@pytest.mark.parametrize(
    ("reach", "status"),
    [(Stage.claimed, "running"), (Stage.taken_over, "queued"), (Stage.sleeping, "sleeping")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_one_that_has_begun_can_be_left_alone(
    stage: Stage, reach: Callable[[Stage], Claimed], status: str
) -> None:
    claim = reach(stage)
    with stage.nothing_changes():
        answers = stage.live.stop_many(
            [(claim.tx_id, StopRequest.expiry("late"))], OTHER_NODE, only_seize=True
        )
    assert answers == [Refused(claim.tx_id, "BEGUN", status)]


def test_one_that_has_not_begun_is_not_left_alone(stage: Stage) -> None:
    bell = stage.queued()
    answers = stage.live.stop_many(
        [(bell.tx_id, StopRequest.expiry("late"))], NODE, only_seize=True
    )
    assert isinstance(answers[0], Claimed)


def test_the_first_reason_stays(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.stop(claim.tx_id, StopRequest.cancel("first"), OTHER_NODE)
    with stage.nothing_changes():
        stage.live.stop(claim.tx_id, StopRequest.cancel("second"), OTHER_NODE)
    assert stage.fields(claim.tx_id)["cancel"] == "cancelled:first"


def test_a_parked_one_must_be_resolved_first(stage: Stage) -> None:
    claim = stage.parked()
    with stage.nothing_changes():
        answer = stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert answer == Refused(claim.tx_id, "PARKED", "")


@pytest.mark.parametrize(
    "status", ["success", "failed", "aborted", "cancelled", "expired", "internal-error"]
)
def test_what_has_ended_cannot_be_cancelled(stage: Stage, status: str) -> None:
    claim = stage.finished(status=status)
    with stage.nothing_changes():
        answer = stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert answer == Refused(claim.tx_id, "FINAL", status)


def test_an_unknown_one_cannot_be_cancelled(stage: Stage) -> None:
    tx_id = stage.new().tx_id
    with stage.nothing_changes():
        assert stage.live.stop(tx_id, StopRequest.cancel("enough"), NODE) == Refused(
            tx_id, "UNKNOWN", ""
        )


def test_a_cancelled_one_whose_canceller_died_is_taken_over(stage: Stage) -> None:
    bell = stage.queued()
    seized = stage.live.stop(bell.tx_id, StopRequest.cancel("enough"), NODE)
    assert isinstance(seized, Claimed)
    stage.taken_over(seized)
    again = stage.live.claim_many([(bell.tx_id, 2)], OTHER_NODE, step_type=STEP)[0]
    assert isinstance(again, Claimed)
    assert again.fields["cancel"] == "cancelled:enough"


@pytest.mark.parametrize("only_seize", [False, True])
def test_one_that_was_lost_may_have_begun_so_its_caller_gets_it_without_the_recall(
    stage: Stage, only_seize: bool
) -> None:
    """Should the caller be lost before it is parked, a worker runs it; it is not ended."""
    new = replace(stage.new(), fence=7, recreated=True)
    [bell] = stage.live.create_many([new])
    assert bell is not None
    assert stage.fields(new.tx_id)["fence"] == "7"
    wanted = [(new.tx_id, StopRequest.cancel("enough"))]
    [seized] = stage.live.stop_many(wanted, NODE, only_seize=only_seize)
    assert isinstance(seized, Claimed)
    fields = stage.fields(new.tx_id)
    assert (fields["status"], fields["node"], fields["recreated"]) == ("running", NODE, "1")
    assert "cancel" not in fields
    assert stage.folded(new.tx_id) == stage.view(new.tx_id)
    # Once a step has begun it is like any other.
    stage.checkpoint(seized, "begun", "1")
    stage.sleep(seized)
    assert isinstance(stage.live.stop(new.tx_id, StopRequest.cancel("enough"), NODE), Bell)
    assert stage.fields(new.tx_id)["cancel"] == "cancelled:enough"


def test_one_that_is_not_as_it_was_seen_is_not_stopped(stage: Stage) -> None:
    bell = stage.queued()
    cancel = StopRequest.cancel("enough")
    for seen in ("running:0", "queued:7"):
        with stage.nothing_changes():
            answer = stage.live.stop(bell.tx_id, cancel, NODE, seen=seen)
        assert answer == Refused(bell.tx_id, "MOVED", "queued")
    assert isinstance(stage.live.stop(bell.tx_id, cancel, NODE, seen="queued:0"), Claimed)
