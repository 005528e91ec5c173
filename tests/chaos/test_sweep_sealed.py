"""A transfer whose payloads rest sealed is broken at every point it passes, and nothing leaks."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from datp_tasks.testing import Kit, crash_sweep
from datp_tasks.testing.sweep import MOVERS, Times
from tests.chaos.transfer_steps import pipelines
from tests.chaos.transfer_world import World
from tests.support.search_everywhere import places_with

ALL = bool(os.environ.get("DATP_SWEEP_ALL"))
TIMES: Times = "all" if ALL else "first"
#: Where a payload is on its way to rest.
WRITING = ("submit.", "hop.", "effect.", "archiver.", "commit:transactions.", "script:")
WORD = "zanzibar"


def is_writing(point: str) -> bool:
    return ALL or point.startswith(WRITING)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fails", [False, True])
def test_whatever_breaks_a_sealed_transfer_ends_once_and_rests_sealed(
    kit: Kit, world: World, fails: bool
) -> None:
    kit.use(*(replace(each.build(), sealed=True) for each in pipelines()))
    report = crash_sweep(
        kit,
        "chaos-transfer",
        world.request(fails=fails, secret=WORD),
        check=world.complaints_about,
        kinds=["crash"],
        times=TIMES,
        jobs=MOVERS,
        where=is_writing,
    )
    report.assert_clean()
    assert report.missed == []
    assert {each.tx_id: each.faults for each in kit.operator.audit() if each.faults} == {}
    assert places_with(kit, WORD) == []
