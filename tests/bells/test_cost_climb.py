"""How many transactions share a hop: what fits into the budget, and more where sharing pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from datp_tasks.bells.costs import ENGINE_US, Climb, CostBook
from datp_tasks.settings import Settings

BUDGET_US = 25_000.0


def settled(cost_us: Callable[[int], float], *, shares: bool, hops: int = 60) -> int:
    """The size at which it stays, if every hop has as many as the last one asked for."""
    climb = Climb()
    size = 1
    for _ in range(hops):
        climb.add(size, cost_us(size))
        size = max(1, min(100, int(climb.size(BUDGET_US, shares=shares))))
    return size


def test_what_costs_the_same_alone_and_together_fits_the_budget() -> None:
    assert settled(lambda n: n * 900.0, shares=False) == 25
    assert settled(lambda n: n * 10_000.0, shares=False) == 2
    assert settled(lambda n: n * 1.0, shares=False) == 100
    assert settled(lambda n: n * 80_000.0, shares=False) == 1


def test_a_commit_that_takes_longer_than_the_budget_is_shared_all_the_same() -> None:
    assert settled(lambda n: 90_000 + n * 200.0, shares=True) == 100
    # The same cost of a step that does not share would be its own.
    assert settled(lambda n: 90_000 + n * 200.0, shares=False) == 1


def test_sharing_that_does_not_pay_is_given_up() -> None:
    assert settled(lambda n: n * 30_000.0, shares=True) <= 2


def test_however_much_it_pays_a_vector_does_not_take_for_ever() -> None:
    size = settled(lambda n: 100_000 + n * 10_000.0, shares=True)
    assert 100_000 + size * 10_000 <= 12 * BUDGET_US


def test_small_hops_at_the_end_of_a_batch_do_not_make_it_small() -> None:
    climb = Climb()
    for size in (1, 2, 4, 8, 16, 32):
        climb.add(size, 20_000 + size * 100)
    before = climb.size(BUDGET_US, shares=True)
    climb.add(3, 20_300)
    assert climb.size(BUDGET_US, shares=True) == pytest.approx(before)


def test_a_size_that_no_hop_had_lately_is_forgotten() -> None:
    climb = Climb()
    climb.add(64, 1_000.0)
    for _ in range(25):
        climb.add(1, 10_000.0)
    assert climb.size(BUDGET_US, shares=False) == pytest.approx(BUDGET_US / (10_000 + ENGINE_US))


def test_as_many_share_a_bell_as_fit_into_the_budget_and_no_more_than_the_limit() -> None:
    unused: Any = None
    book = CostBook(unused, Settings(vector_max=40))
    book._measured = {"p/0": 5_000.0, "p/1": 10.0, "p/2": 90_000.0}
    assert [book.vector_size(place) for place in ("p/0", "p/1", "p/2")] == [5, 40, 1]
