"""People get out of the elevator before others get in: admin, then out, then in."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from datp_tasks import Pipeline
from datp_tasks.bells.broker_guard import OTHER_FIRST_EVERY
from datp_tasks.live.live_types import PRIORITIES
from tests.support.house import House

pytestmark = pytest.mark.acceptance

LEVELS = ("admin", "out", "in")
OF_EACH = 15


def heard(messages: Sequence[tuple[str, str]], asked: int) -> list[str]:
    """The order of transactions if the worker has asked so often before."""
    queues = {level: [tx for of, tx in messages if of == level] for level in LEVELS}
    others = sorted(PRIORITIES.values())[1:]
    found: dict[str, None] = {}
    for number in range(asked + 1, asked + 1 + len(messages)):
        turn, left = divmod(number, OTHER_FIRST_EVERY)
        first = None if left else others[-turn % len(others)]
        order = sorted(LEVELS, key=lambda level: (PRIORITIES[level] != first, PRIORITIES[level]))
        level = next(level for level in order if queues[level])
        found.setdefault(queues[level].pop(0))
    return list(found)


def test_bells_are_heard_by_level_and_in_order_within_a_level(house: House) -> None:
    house.use(Pipeline("order").step("acc/mark"))
    rung: list[tuple[str, str]] = []
    for level in random.Random(7).sample(LEVELS * OF_EACH, k=len(LEVELS) * OF_EACH):
        tx_id = house.submit_silently("order")
        house.send("acc/mark", [(tx_id, 1)], group="master", priority=level)
        rung.append((level, tx_id))
    # A doubled bell at another level must not make a difference either.
    doubled = [("in", tx_id) for _, tx_id in rung[::5]]
    for level, tx_id in doubled:
        house.send("acc/mark", [(tx_id, 1)], group="master", priority=level)
    house.wait_ready(house.worker())
    house.wait_for_note("mark", count=len(rung))
    marked = [each["tx"] for each in house.notes("mark")]
    # Each level below the first has its turn, so that none waits for ever.
    turns = OTHER_FIRST_EVERY * len(PRIORITIES)
    assert marked in [heard(rung + doubled, asked) for asked in range(turns)]
    # Most of the time the most urgent goes first.
    levels = {tx_id: level for level, tx_id in rung}
    begin = [levels[tx_id] for tx_id in marked[:OF_EACH]]
    assert begin.count("admin") >= OF_EACH * 2 // 3
