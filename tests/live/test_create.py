"""create.lua: an accepted transaction enters the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from datp_tasks.live.live_types import Bell, Claimed
from datp_tasks.live.scripts import ScriptRunner
from tests.support.live_states import STATE_JSON, STEP, Stage


def test_a_new_transaction_is_queued_and_its_bell_says_where(stage: Stage) -> None:
    new = stage.new()
    assert stage.live.create_many([new]) == [Bell(new.tx_id, 1, "master", STEP, "p/0", "in")]
    assert stage.fields(new.tx_id) == {
        "status": "queued",
        "owner": "alice",
        "pipeline": "p",
        "group": "master",
        "stepType": STEP,
        "place": "p/0",
        "priority": "in",
        "fence": "0",
        "sequence": "1",
        "version": "0",
        "jsonVersion": "0",
        "state": STATE_JSON,
        "metadata": '{"n":9007199254740993}',
    }
    assert stage.score(new.tx_id, "queuedZ") == stage.now_ms


def test_a_second_create_changes_nothing(stage: Stage) -> None:
    new = stage.new(external_id="e-1")
    stage.live.create_many([new])
    stage.clock.advance(seconds=1)
    with stage.nothing_changes():
        assert stage.live.create_many([replace(new, state_json="{}")]) == [None]


@pytest.mark.parametrize(
    "reach",
    [Stage.claimed, Stage.sleeping, Stage.parked, Stage.finished, Stage.archived],
    ids=lambda reach: reach.__name__,
)
def test_one_that_has_moved_on_is_not_created_again(
    stage: Stage, reach: Callable[[Stage], Claimed]
) -> None:
    claim = reach(stage)
    with stage.nothing_changes():
        assert stage.live.create_many([replace(stage.new(), tx_id=claim.tx_id)]) == [None]


def test_many_are_created_in_one_round_trip(stage: Stage) -> None:
    shards = [f"{shard:02d}" for shard in range(16)]
    # Every server of a cluster is told the script once.
    stage.live.create_many([stage.new(shard=shard) for shard in shards])
    before = stage.live.round_trips
    bells = stage.live.create_many([stage.new(shard=shard) for shard in shards])
    assert all(bells)
    assert stage.live.round_trips == before + 1
    assert stage.live.sizes()["queuedZ"] == 2 * len(shards)


def test_neighbours_of_different_pipelines_and_owners_keep_their_own(stage: Stage) -> None:
    """Those of one pipeline share a call, in which what they share is said once."""
    new = [stage.new() for _ in range(4)]
    new[1] = replace(new[1], owner="bob")
    new[2] = replace(new[2], pipeline="q", group="kyc", step_type="t/other", place="q/0")
    runner: ScriptRunner = vars(stage.live)["_runner"]
    before = runner.calls
    bells = stage.live.create_many(new)
    assert runner.calls == before + 2
    assert [bell and (bell.tx_id, bell.group, bell.owner) for bell in bells] == [
        (new[0].tx_id, "master", "alice"),
        (new[1].tx_id, "master", "bob"),
        (new[2].tx_id, "kyc", "alice"),
        (new[3].tx_id, "master", "alice"),
    ]
    names = ("owner", "pipeline", "group", "stepType", "place")
    stored = [[stage.fields(each.tx_id)[name] for name in names] for each in new]
    assert stored == [
        ["alice", "p", "master", STEP, "p/0"],
        ["bob", "p", "master", STEP, "p/0"],
        ["alice", "q", "kyc", "t/other", "q/0"],
        ["alice", "p", "master", STEP, "p/0"],
    ]


def test_an_external_id_is_a_field_and_reserves_no_key_of_its_own(stage: Stage) -> None:
    """Whether it is used already is what the unique index in SQL decides."""
    bell = stage.queued(external_id="order 17:b")
    assert stage.fields(bell.tx_id)["externalId"] == "order 17:b"
    assert not [key for key in stage.picture() if "externalId" in key]
