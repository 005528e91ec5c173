"""What one more transaction adds to a hop, read off hops of different sizes."""

from __future__ import annotations

import pytest

from datp_tasks.bells.costs import Fit


def fitted(fixed_us: float, each_us: float, sizes: list[int]) -> float:
    fit = Fit()
    for size in sizes:
        fit.add(size, fixed_us + size * each_us)
    return fit.each_us()


@pytest.mark.parametrize("sizes", [[1, 2], [1, 4, 9, 16], [50, 60, 70, 60, 50]])
def test_the_fixed_cost_of_a_hop_is_left_out(sizes: list[int]) -> None:
    assert fitted(8_000, 1_000, sizes) == pytest.approx(1_000)


def test_hops_of_one_size_tell_their_average() -> None:
    assert fitted(8_000, 1_000, [4, 4, 4]) == pytest.approx(3_000)
    assert fitted(8_000, 1_000, [1]) == pytest.approx(9_000)


def test_sharing_is_not_believed_to_do_wonders() -> None:
    fit = Fit()
    fit.add(1, 10_000)
    # A larger vector that was quicker: noise.
    fit.add(10, 9_000)
    average = fit.cost / fit.n
    assert fit.each_us() == pytest.approx(average * 0.1)


def test_what_costs_more_together_counts_with_its_average() -> None:
    fit = Fit()
    fit.add(1, 1_000)
    fit.add(10, 50_000)
    assert fit.each_us() == pytest.approx(fit.cost / fit.n)


def test_old_measurements_fade() -> None:
    fit = Fit()
    for _ in range(5):
        fit.add(10, 100_000)
    for _ in range(60):
        fit.add(10, 1_000)
    assert fit.each_us() == pytest.approx(100, rel=0.01)
