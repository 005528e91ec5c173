"""Neighbours of a vector share what they have in common, and nothing else."""

from __future__ import annotations

import time
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.engine.writes import Passage, Writes
from datp_tasks.live.live_types import FIRST_SEQUENCE
from datp_tasks.model.plan import Action
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

Data = dict[str, Any]


def submit_mixed(kit: Kit, pipelines: list[str], data: Data) -> list[str]:
    """One bell for transactions of these pipelines, in this order."""
    kit.lose_bells()
    tx_ids = [kit.submit(pipeline, data) for pipeline in pipelines]
    kit.lose_bells(False)
    kit.ring_together(tx_ids)
    return tx_ids


@pytest.fixture
def steps(datp: Kit) -> Kit:
    @datp.step("t/first")
    def first(ctx: Any, data: Data) -> None:
        return None

    @datp.step("t/one")
    def one(ctx: Any, data: Data) -> Data:
        return {"by": "one"}

    @datp.step("t/other")
    def other(ctx: Any, data: Data) -> Data:
        return {"by": "other"}

    return datp


def test_neighbours_that_go_on_with_different_steps_each_go_their_way(steps: Kit) -> None:
    steps.use(
        Pipeline("one").step("t/first").step("t/one").build(),
        Pipeline("other").step("t/first").step("t/other").build(),
        Pipeline("away").step("t/first").step("t/one", group="far").build(),
    )
    rung = len(steps.send.rung)
    tx_ids = submit_mixed(steps, ["one", "other", "away", "one", "away", "other"], {})
    ends = [steps.status(tx_id) for tx_id in tx_ids]
    assert [end.status for end in ends] == [Status.SUCCESS] * 6
    assert [end.output["by"] for end in ends if end.output] == [
        *("one", "other", "one", "one", "one", "other")
    ]
    # After those of the submits, and one for all: what went to the other node group.
    bells = steps.send.rung[rung + len(tx_ids) + 1 :]
    assert {tx_id for _, pairs in bells for tx_id, _ in pairs} == {tx_ids[2], tx_ids[4]}


def test_a_checkpoint_says_where_each_goes_on(steps: Kit) -> None:
    """Not where its neighbour does: people and the reconciler look there."""
    places: list[tuple[str, str]] = []

    @steps.step("t/look")
    def look(ctx: Any, data: Data) -> None:
        fields = steps.connections.live.fields_many([ctx.tx_id])[0]
        places.append((fields["stepType"], fields["place"]))

    steps.use(
        Pipeline("here").step("t/first").step("t/look").build(),
        Pipeline("there").step("t/first").step("t/first").step("t/look").build(),
    )
    submit_mixed(steps, ["here", "there", "here"], {})
    assert places == [("t/look", "here/1"), ("t/look", "here/1"), ("t/look", "there/2")]


def test_each_step_has_its_own_time_limit(steps: Kit) -> None:
    @steps.step("t/wait", retry={"max_attempts": 1})
    def wait(ctx: Any, data: Data) -> None:
        time.sleep(0.1)

    steps.use(
        Pipeline("patient").step("t/wait", timeout_s=30).build(),
        Pipeline("hasty").step("t/wait", timeout_s=0.02).build(),
    )
    tx_ids = submit_mixed(steps, ["patient", "hasty", "patient"], {})
    assert [steps.status(tx_id).status for tx_id in tx_ids] == [
        *(Status.SUCCESS, Status.INTERNAL_ERROR, Status.SUCCESS)
    ]


@pytest.mark.parametrize("name", ["before", "action", "group", "snapshot"])
def test_only_those_that_go_the_same_way_share_a_passage(name: str) -> None:
    one = Action("run", "near", None, "p/0", "0")
    other = Action("run", "near", None, "p/1", "1")
    way: Data = {"before": one, "action": other, "group": "near", "snapshot": False}
    different = {"before": other, "action": one, "group": "far", "snapshot": True}
    passage = Passage(**way, is_known=True, is_here=True, opens=True)
    writes = Writes(may_go_on=True)
    assert writes.passage(**way) is None
    writes.passages.append(passage)
    assert writes.passage(**way) is passage
    assert writes.passage(**{**way, name: different[name]}) is None


def test_one_whose_worker_was_lost_is_asked_for_before_its_neighbours_run(steps: Kit) -> None:
    @steps.step("t/pay", on_crash="probe")
    def pay(ctx: Any, data: Data) -> None:
        return None

    steps.use(Pipeline("p").step("t/pay").build())
    steps.lose_bells()
    pairs = [(steps.submit("p", {}), FIRST_SEQUENCE) for _ in range(3)]
    hop = steps.process.worker.hop
    runs, _ = hop._claim_pairs(pay, pairs, [])
    for run in runs:
        run.plan(steps.connections.catalogue.version)
    runs[1].crashed = True
    assert hop._executor.choose(runs) == ("probe", [runs[1]], [runs[0], runs[2]])
