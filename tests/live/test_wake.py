"""wake.lua: a sleeping transaction is queued when it is due."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datp_tasks.live.live_types import Bell, Claimed, Refused
from tests.support.live_states import STEP, Stage


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


def test_a_client_can_wake_it_before_its_time(stage: Stage) -> None:
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
    stage.live.confirm_archived_many([(claim.tx_id, stage.version(claim.tx_id), "")])
    stage.redis.delete(stage.live.keys.state(claim.tx_id))
    stage.clock.advance(seconds=10**6)
    for only_due in (True, False):
        with stage.nothing_changes():
            answers = stage.live.wake_many([claim.tx_id], only_due=only_due)
        assert answers == [Refused(claim.tx_id, "UNKNOWN", "")]
    assert stage.live.due("sleepingZ", batch_max=10) == [claim.tx_id]


def test_one_that_is_not_as_it_was_seen_is_not_woken(stage: Stage) -> None:
    claim = stage.sleeping(sleep_ms=10**9)
    for seen in (f"queued:{claim.fence}", f"sleeping:{claim.fence + 1}"):
        with stage.nothing_changes():
            answers = stage.live.wake_many([claim.tx_id], only_due=False, seen=seen)
        assert answers == [Refused(claim.tx_id, "MOVED", "sleeping")]
    [woken] = stage.live.wake_many([claim.tx_id], only_due=False, seen=f"sleeping:{claim.fence}")
    assert isinstance(woken, Bell)
