"""Pipelines that call pipelines."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Call, Pipeline, Sleep
from datp_tasks.bells import costs
from datp_tasks.engine.decide import NESTING_MAX
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

Data = dict[str, Any]


def declare(kit: Kit) -> list[tuple[str, str]]:
    """t/call calls params.to; t/mark notes (mark, node group) and adds its mark to the data."""
    marks: list[tuple[str, str]] = []

    @kit.step("t/call")
    def call(ctx: Any, data: Data) -> Call:
        return Call(ctx.params["to"], data)

    @kit.step("t/mark")
    def mark(ctx: Any, data: Data) -> Data:
        group = kit.connections.live.fields_many([ctx.tx_id])[0]["group"]
        marks.append((ctx.params["mark"], group))
        return {"marks": [*data.get("marks", []), ctx.params["mark"]]}

    return marks


def mark(pipeline: Pipeline, text: str, **options: Any) -> Pipeline:
    return pipeline.step("t/mark", params={"mark": text}, **options)


def test_a_child_on_another_group_runs_there_and_returns(datp: Kit) -> None:
    marks = declare(datp)
    parent = mark(Pipeline("p"), "before").step("t/call", params={"to": "child"})
    datp.use(
        mark(mark(Pipeline("child", group="kyc", startable=False), "c1"), "c2").build(),
        mark(parent, "after").build(),
    )
    summary = datp.run("p", {})
    assert summary.output == {"marks": ["before", "c1", "c2", "after"]}
    assert marks == [("before", "master"), ("c1", "kyc"), ("c2", "kyc"), ("after", "master")]
    # There and back again: the start, the call and the return.
    assert len(datp.send.rung) == 3


def test_a_vector_goes_to_its_child_and_comes_back_together(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "BUDGET_MS", 10_000)
    kit = Kit(datp_servers)

    @kit.step("t/call")
    def call(ctx: Any, data: Data) -> Call:
        return Call("child", data)

    @kit.step("t/quick")
    def quick(ctx: Any, data: Data) -> None: ...

    kit.use(
        Pipeline("child", group="kyc", startable=False).step("t/quick").build(),
        Pipeline("p").step("t/call").step("t/quick").build(),
    )
    # Known to be quick: what is not known runs alone.
    kit.run("p", {})
    kit.lose_bells()
    tx_ids = [kit.submit("p", {}) for _ in range(5)]
    kit.lose_bells(False)
    before = len(kit.send.rung)
    kit.ring_together(tx_ids)
    assert {kit.status(tx_id).status for tx_id in tx_ids} == {Status.SUCCESS}
    # The start, the call and the return: one message each.
    assert [len(pairs) for _, pairs in kit.send.rung[before:]] == [5, 5, 5]
    kit.close()


def test_starts_of_children_give_way_to_those_that_come_back(datp: Kit) -> None:
    marks = declare(datp)
    parent = Pipeline("p").step("t/call", params={"to": "child"})
    datp.use(
        mark(Pipeline("child", group="kyc", startable=False), "c").build(),
        mark(parent, "after").build(),
    )
    priorities: list[str] = []
    send = datp.connections.bells.ringer._send

    def noted(step_type: str, pairs: Any, *, group: str, priority: str, answers: str = "") -> None:
        priorities.append(priority)
        send(step_type, pairs, group=group, priority=priority)

    datp.connections.bells.ringer._send = noted
    datp.run("p", {})
    assert len(marks) == 2
    assert priorities == ["in", "in", "out"]


def test_a_child_that_sleeps_holds_its_parent_up(datp: Kit) -> None:
    declare(datp)

    @datp.step("t/sleep")
    def sleep(ctx: Any, data: Data) -> Sleep | None:
        return Sleep(seconds=86_400) if ctx.sleeps == 0 else None

    parent = Pipeline("p").step("t/call", params={"to": "child"})
    datp.use(
        mark(Pipeline("child", group="kyc", startable=False).step("t/sleep"), "c").build(),
        mark(parent, "after").build(),
    )
    tx_id = datp.submit("p", {})
    assert datp.status(tx_id).status is Status.SLEEPING
    datp.advance(days=1)
    assert datp.status(tx_id).output == {"marks": ["c", "after"]}


def test_a_shipped_step_routes_by_a_field(datp: Kit) -> None:
    declare(datp)
    route = {"field": "country", "map": {"PH": "kyc-ph"}, "default": "kyc-other"}
    datp.use(
        mark(Pipeline("kyc-ph", startable=False), "ph").build(),
        mark(Pipeline("kyc-other", startable=False), "other").build(),
        Pipeline("p").step("util/child-pipeline", params=route).build(),
    )
    assert datp.run("p", {"country": "PH"}).output == {"marks": ["ph"]}
    assert datp.run("p", {"country": "AU"}).output == {"marks": ["other"]}


def test_pipelines_can_be_nested_up_to_the_limit_and_no_deeper(datp: Kit) -> None:
    declare(datp)
    deepest = NESTING_MAX
    for level in range(deepest, 0, -1):
        pipeline = Pipeline(f"level{level}")
        if level < deepest:
            pipeline.step("t/call", params={"to": f"level{level + 1}"})
        datp.use(mark(pipeline, str(level)).build())
    summary = datp.run("level1", {})
    assert summary.output == {"marks": [str(level) for level in range(deepest, 0, -1)]}
    datp.use(Pipeline("level0").step("t/call", params={"to": "level1"}).build())
    assert datp.run("level0", {}).status is Status.INTERNAL_ERROR


def test_a_pipeline_that_calls_itself_for_ever_is_stopped_and_undone(datp: Kit) -> None:
    undone: list[str] = []

    @datp.step("t/do")
    def do(ctx: Any, data: Data) -> None: ...

    @do.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        undone.append(ctx.idempotency_key)

    declare(datp)
    datp.use(Pipeline("p").step("t/do").step("t/call", params={"to": "p"}).build())
    summary = datp.run("p", {})
    assert summary.status is Status.INTERNAL_ERROR
    assert summary.note == f"pipelines are nested deeper than {NESTING_MAX}"
    assert len(undone) == NESTING_MAX


@pytest.mark.parametrize("state", ["unknown", "disabled"])
def test_a_child_that_cannot_run_is_tried_again_and_then_an_internal_error(
    datp: Kit, state: str
) -> None:
    declare(datp)
    datp.use(
        Pipeline("p").step("t/call", params={"to": "child"}, retry={"max_attempts": 2}).build()
    )
    if state == "disabled":
        datp.use(mark(Pipeline("child"), "c").build())
        datp.connections.pipelines.disable("child")
    tx_id = datp.submit("p", {})
    assert datp.status(tx_id).status is Status.SLEEPING
    summary = datp.finish(tx_id)
    assert summary.status is Status.INTERNAL_ERROR
    assert "child" in (summary.note or "")


def test_a_child_that_comes_into_use_in_time_is_called(datp: Kit) -> None:
    declare(datp)
    datp.use(Pipeline("p").step("t/call", params={"to": "child"}).build())
    tx_id = datp.submit("p", {})
    datp.use(mark(Pipeline("child"), "c").build())
    assert datp.finish(tx_id).output == {"marks": ["c"]}


def test_the_version_of_a_child_is_pinned_when_it_is_called(datp: Kit) -> None:
    declare(datp)

    @datp.step("t/upgrade")
    def upgrade(ctx: Any, data: Data) -> Sleep | None:
        if ctx.sleeps == 0:
            datp.use(mark(Pipeline("child"), "new child").build())
            datp.use(mark(Pipeline("p"), "new parent").build())
            return Sleep(seconds=60)
        return None

    datp.use(
        mark(Pipeline("child").step("t/upgrade"), "old child").build(),
        mark(Pipeline("p").step("t/call", params={"to": "child"}), "old parent").build(),
    )
    old = datp.run("p", {})
    assert old.output == {"marks": ["old child", "old parent"]}
    assert datp.run("p", {}).output == {"marks": ["new parent"]}
    assert datp.run("child", {}).output == {"marks": ["new child"]}


def test_a_child_is_looked_up_when_it_is_called_and_not_when_the_parent_started(
    datp: Kit,
) -> None:
    declare(datp)

    @datp.step("t/upgrade")
    def upgrade(ctx: Any, data: Data) -> None:
        datp.use(mark(Pipeline("child"), "new child").build())

    datp.use(
        mark(Pipeline("child"), "old child").build(),
        Pipeline("p").step("t/upgrade").step("t/call", params={"to": "child"}).build(),
    )
    assert datp.run("p", {}).output == {"marks": ["new child"]}
