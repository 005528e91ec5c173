"""A transfer that fails in its last step is broken on its way back, at every point it passes.

`DATP_SWEEP_ALL=1` tries each point each time it is passed (see `make chaos`), else the last time,
and only the worst kind, where it can do the most harm.
"""

from __future__ import annotations

import os

import pytest

from datp_tasks.testing import Kit, crash_sweep
from datp_tasks.testing.cases import KINDS
from datp_tasks.testing.sweep import MOVERS, Times
from tests.chaos.transfer_world import World

ALL = bool(os.environ.get("DATP_SWEEP_ALL"))
TIMES: Times = "all" if ALL else "last"
#: What fails before it happened, or whose answer is lost after it, does so on one side only.
SIDES = {"exception": ("before",), "lost-answer": ("after",)}
UNDONE = ("payments/reserve", "chaos/book", "chaos/send", "chaos/wire", "payments/commit")
HARMFUL = ("hop.", "commit:transactions.", "undo:", "script:finish")


def is_harmful(point: str) -> bool:
    return ALL or point.startswith(HARMFUL)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [*KINDS] if ALL else ["overtaken"])
def test_whatever_happens_on_the_way_back_all_is_undone_once(
    kit: Kit, world: World, kind: str
) -> None:
    report = crash_sweep(
        kit,
        "chaos-transfer",
        world.request(fails=True),
        check=world.complaints_about,
        ends=["failed"],
        kinds=[kind],
        times=TIMES,
        jobs=MOVERS,
        where=is_harmful,
    )
    report.assert_clean()
    assert report.missed == []
    undone = {point for point in report.points if point.startswith("undo:")}
    sides = SIDES.get(kind, ("before", "after"))
    assert undone == {f"undo:{name}:{side}" for name in UNDONE for side in sides}
    assert world.balance_of("bob") == 0
