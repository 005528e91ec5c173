"""People get out of the elevator before others get in: admin, then out, then in."""

from __future__ import annotations

import random

import pytest

from datp_tasks import Pipeline
from tests.support.house import House

pytestmark = pytest.mark.acceptance

LEVELS = ("admin", "out", "in")
OF_EACH = 15


def test_bells_are_heard_by_level_and_in_order_within_a_level(house: House) -> None:
    house.use(Pipeline("order").step("acc/mark"))
    rung: list[tuple[str, str]] = []
    for level in random.Random(7).sample(LEVELS * OF_EACH, k=len(LEVELS) * OF_EACH):
        tx_id = house.submit_silently("order")
        house.send("acc/mark", [(tx_id, 1)], group="master", priority=level)
        rung.append((level, tx_id))
    # A doubled bell at another level must not make a difference either.
    for level, tx_id in rung[::5]:
        house.send("acc/mark", [(tx_id, 1)], group="master", priority="in")
        assert level in LEVELS
    house.wait_ready(house.worker())
    house.wait_for_note("mark", count=len(rung))
    expected = [tx_id for wanted in LEVELS for level, tx_id in rung if level == wanted]
    assert [each["tx"] for each in house.notes("mark")] == expected
