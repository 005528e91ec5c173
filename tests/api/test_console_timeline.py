"""The steps of a transaction over time, as the console draws them off the journal."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Call, Fail, Pipeline, Sleep
from datp_tasks.api.console import timeline
from datp_tasks.api.console.timeline import WIDTH, Drawing, StepRow, Timeline
from datp_tasks.testing import Kit

Data = dict[str, Any]


def drawn(kit: Kit, tx_id: str) -> Timeline:
    [summary] = kit.connections.record.summaries([tx_id])
    drawing = Drawing(summary, kit.connections.catalogue.version)
    return drawing.draw(kit.operator.replay(tx_id).entries, kit.connections.live.server_now_ms())


@pytest.fixture
def kit(datp: Kit) -> Kit:
    @datp.step("t/reserve")
    def reserve(ctx: Any, data: Data) -> Data:
        return {**data, "reserved": True}

    @reserve.rollback
    def release(ctx: Any, data: Data, output: Data | None) -> None:
        return None

    @datp.step("t/child")
    def child(ctx: Any, data: Data) -> Any:
        return Call("below", data)

    @datp.step("t/poll")
    def poll(ctx: Any, data: Data) -> Any:
        return Sleep(seconds=60) if ctx.sleeps < data.get("polls", 0) else None

    @datp.step("t/refuse")
    def refuse(ctx: Any, data: Data) -> Any:
        if data.get("refused"):
            raise Fail("not enough money")
        return None

    datp.use(
        Pipeline("below", startable=False).step("t/poll").build(),
        Pipeline("way").step("t/reserve").step("t/child").step("t/refuse").build(),
    )
    return datp


def states(found: Timeline) -> list[tuple[str, str, int]]:
    return [(row.path, row.state, row.tries) for row in found.rows]


def in_order(rows: list[StepRow]) -> bool:
    """Nothing is drawn before what came before it, or outside of the lane."""
    segments = sorted((each for row in rows for each in row.segments), key=lambda s: s.from_ms)
    places = [each.x for each in segments]
    ends = [each.x + each.width for each in segments]
    return places == sorted(places) and max(ends) <= WIDTH + timeline.WIDTH_MIN


def test_children_stand_below_their_step_and_the_undo_path_is_marked(kit: Kit) -> None:
    tx_id = kit.submit("way", {"polls": 1, "refused": True})
    found = drawn(kit, tx_id)
    assert states(found) == [
        *(("0", "done", 1), ("1", "called", 1)),
        *(("1.0", "current", 1), ("2", "pending", 0)),
    ]
    kit.finish(tx_id)
    found = drawn(kit, tx_id)
    assert states(found) == [
        *(("0", "undone", 1), ("1", "done", 1)),
        *(("1.0", "done", 2), ("2", "failed", 1)),
    ]
    assert found.is_undoing and [row.in_undo for row in found.rows] == [True, False, False, False]
    assert found.rows[2].sleeps == 1 and found.rows[3].errors == ["not enough money"]
    assert in_order(found.rows) and not found.is_broken


def test_a_step_that_polls_for_long_is_not_drawn_whole(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "SEGMENTS_MAX", 4)
    tx_id = kit.submit("way", {"polls": 6})
    kit.finish(tx_id)
    polled = drawn(kit, tx_id).rows[2]
    assert (len(polled.segments), polled.sleeps, polled.tries) == (4, 6, 7)
    assert polled.undrawn > 0
    # What is not drawn is counted.
    assert polled.waited_s > sum(s.seconds for s in polled.segments if s.status != "running")
