"""A transfer is broken at every point it passes: it ends once, and all the money is there.

`DATP_SWEEP_ALL=1` tries each point each time it is passed (see `make chaos`), else the first time.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from datp_tasks.failpoints import POINTS
from datp_tasks.live.scripts import script_names
from datp_tasks.testing import Kit, crash_sweep
from datp_tasks.testing.cases import Report
from datp_tasks.testing.sweep import MOVERS, Times
from tests.chaos.transfer_world import World

NIGHT_S = 28_800
ALL = bool(os.environ.get("DATP_SWEEP_ALL"))
TIMES: Times = "all" if ALL else "first"
#: Where one who stands still can do the most harm.
HARMFUL = ("hop.", "archiver.", "commit:transactions.", "effect:chaos/send", "script:finish")

Where = Callable[[str], bool]

#: Scripts that a transfer needs when people, other nodes or outages come into it. A script that
#: is neither here nor on the way of a transfer has been forgotten. Doorbells (`ring`, `answer`)
#: need a broker: test_sweep_processes.py has them.
OTHER_SCRIPTS = {
    *("answer", "ring"),
    *("forget", "drop_running", "note_problem", "park", "resolve", "restore", "ring_again", "stop"),
    *("due_webhooks", "place_webhook", "set_switch", "take_counts", "take_tokens", "take_webhooks"),
}


def swept(
    kit: Kit, world: World, kinds: list[str], *, blind: bool, where: Where = lambda point: True
) -> Report:
    request = world.request(night_s=NIGHT_S, blind=blind)
    return crash_sweep(
        kit,
        "chaos-transfer",
        request,
        check=world.complaints_about,
        ends=["success"],
        kinds=kinds,
        times=TIMES,
        jobs=MOVERS,
        where=where,
    )


def is_harmful(point: str) -> bool:
    return ALL or point.startswith(HARMFUL)


def reached(report: Report, kind: str) -> set[str]:
    """What lies behind the boundaries of a kind."""
    names = [point.split(":")[1] for point in report.points if point.startswith(f"{kind}:")]
    return {part for name in names for part in name.split("+")}


@pytest.mark.timeout(900)
def test_nothing_that_dies_or_fails_on_the_way_of_a_transfer_changes_its_end(
    kit: Kit, world: World
) -> None:
    report = swept(kit, world, ["exception", "lost-answer", "crash"], blind=True)
    report.assert_clean()
    assert report.missed == []
    on_the_way = {each for each in POINTS if each.startswith(("submit.", "hop.", "effect."))}
    # Nothing of it is ever in doubt, or final before its end (test_sweep_no_return.py has that).
    assert on_the_way - {"hop.after_park_mark", "hop.after_point"} <= set(report.points)
    assert reached(report, "script") >= set(script_names()) - OTHER_SCRIPTS
    assert {"transactions.accept", "transactions.finish", "effects.open"} <= reached(
        report, "commit"
    )
    assert {"payments/commit", "chaos/kyc"} <= reached(report, "publish")
    effects = {"payments/reserve", "chaos/book", "chaos/send", "chaos/wire"}
    assert effects <= reached(report, "effect")
    # It was not for nothing that the bank knows keys.
    assert any(line["kind"] == "repeat" for line in world.lines())


@pytest.mark.timeout(900)
def test_a_worker_that_stands_still_and_goes_on_later_changes_nothing(
    kit: Kit, world: World
) -> None:
    report = swept(kit, world, ["pause"], blind=False, where=is_harmful)
    report.assert_clean()
    assert report.missed == []
