"""Vectors are broken at every point they pass: each one ends once, each effect is there once.

`DATP_SWEEP_ALL=1` tries each point each time it is passed (see `make chaos`), else the first time.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from datp_tasks.testing import Kit, crash_sweep
from datp_tasks.testing.sweep import MOVERS, Times
from tests.chaos.vector_world import VectorWorld

ALL = bool(os.environ.get("DATP_SWEEP_ALL"))
TIMES: Times = "all" if ALL else "first"
SIZE = 4
#: Where one who stands still can do the most harm.
HARMFUL = ("hop.", "commit:", "effect", "undo:")

CALM = ["exception", "lost-answer", "crash"]
STILL = ["pause", "overtaken"]


def is_harmful(point: str) -> bool:
    return ALL or point.startswith(HARMFUL)


def swept(kit: Kit, world: VectorWorld, pipeline: str, kinds: list[str], **more: Any) -> set[str]:
    report = crash_sweep(
        kit,
        pipeline,
        world.data,
        check=world.complaints_about,
        ends=["success", "failed"],
        together=SIZE,
        kinds=kinds,
        times=TIMES,
        jobs=MOVERS,
        **more,
    )
    report.assert_clean()
    assert report.missed == []
    return set(report.points)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("pipeline", ["vectors", "shared"])
def test_nothing_that_dies_or_fails_on_the_way_of_a_vector_changes_an_end(
    kit: Kit, vector_world: VectorWorld, pipeline: str
) -> None:
    points = swept(kit, vector_world, pipeline, CALM)
    assert {"commit:effects.open:before", "effect.after_commit"} <= points
    types = {"vectors": ("v/book", "v/send"), "shared": ("v/pay",)}[pipeline]
    for name in types:
        assert {f"effect:{name}:after", f"undo:{name}:after"} <= points


@pytest.mark.timeout(900)
@pytest.mark.parametrize("pipeline", ["vectors", "shared"])
def test_a_worker_that_stands_still_in_a_vector_and_goes_on_later_changes_nothing(
    kit: Kit, vector_world: VectorWorld, pipeline: str
) -> None:
    swept(kit, vector_world, pipeline, STILL, where=is_harmful)
