"""Sides that take turns, so that a noisy neighbour hits all of them; ratios are within a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.report import Step

#: Does so many; how many a second.
Side = Callable[[int], float]

#: A round of a side takes about so long, so that all sides of a round meet the same weather.
ROUND_S = 2.5
COUNT_STEP = 100


@dataclass
class Rounds:
    """Figures of all sides, round by round."""

    found: dict[str, list[float]]

    def middle(self, side: str) -> float:
        return median(self.found[side])

    def ratios(self, side: str, to: str) -> list[float]:
        pairs = zip(self.found[side], self.found[to], strict=True)
        return [mine / other for mine, other in pairs]

    def ratio(self, side: str, to: str) -> float:
        return median(self.ratios(side, to))

    def shown(self, side: str) -> tuple[str, str]:
        return shown(self.found[side])


def take_turns(
    sides: Mapping[str, Side], counts: Mapping[str, int], rounds: int, step: Step
) -> Rounds:
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, side in sides.items():
            step.doing(f"{name}, round {number + 1} of {rounds}")
            found[name].append(side(counts[name]))
            step.done()
    return Rounds(found)


def counts_for(sides: Mapping[str, Side], first: int, count_max: int) -> dict[str, int]:
    """How many of each side fill a round. Asked twice: the first time also warms up."""
    counts = {}
    for name, side in sides.items():
        side(first)
        per_s = side(first)
        counts[name] = max(first, min(count_max, round(per_s * ROUND_S / COUNT_STEP) * COUNT_STEP))
    return counts


def shown(values: list[float], decimals: int = 0) -> tuple[str, str]:
    """Median and range, for a table."""
    low, middle, high = (f"{v:,.{decimals}f}" for v in (min(values), median(values), max(values)))
    return middle, f"{low}-{high}"
