"""Geometry of the charts: numbers to rectangles and lines of an SVG. Templates draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

#: The SVG is stretched to its place, so units are parts of its width and height.
WIDTH, HEIGHT = 1_000.0, 100.0
GAP = 0.2


@dataclass(frozen=True, slots=True)
class Bar:
    series: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Bars:
    """Stacked bars, one for each slot of time."""

    rects: list[Bar]
    names: list[str]
    #: The highest bar, all its parts together.
    top: float
    #: Of each slot: when it began, and the values by name.
    rows: list[tuple[datetime, list[float]]]

    @property
    def is_empty(self) -> bool:
        return self.top == 0

    @property
    def total(self) -> float:
        return sum(sum(values) for _, values in self.rows)


@dataclass(frozen=True, slots=True)
class ChartLine:
    points: str
    top: float
    #: None: there is no value in any slot.
    last: float | None
    rows: list[tuple[datetime, list[float]]]


def grouped_bars(starts_s: Sequence[int], series: Mapping[str, Sequence[float]]) -> Bars:
    """Beside each other: values that are not parts of one sum."""
    names = list(series)
    rows = [
        (_time(start), [series[name][place] for name in names])
        for place, start in enumerate(starts_s)
    ]
    top = max((max(values) for _, values in rows), default=0.0)
    step = WIDTH / max(1, len(rows) * len(names))
    rects = [
        Bar(
            name,
            round((place * len(names) + number) * step, 2),
            round(HEIGHT - max(1.5, value / top * HEIGHT), 2),
            round(step * (1 - GAP), 2),
            round(max(1.5, value / top * HEIGHT), 2),
        )
        for place, (_, values) in enumerate(rows)
        for number, (name, value) in enumerate(zip(names, values, strict=True))
        if value and top
    ]
    return Bars(rects, names, top, rows)


def bars(starts_s: Sequence[int], series: Mapping[str, Sequence[float]]) -> Bars:
    names = list(series)
    rows = [
        (_time(start), [series[name][place] for name in names])
        for place, start in enumerate(starts_s)
    ]
    top = max((sum(values) for _, values in rows), default=0.0)
    step = WIDTH / max(1, len(rows))
    rects = []
    for place, (_, values) in enumerate(rows):
        below = 0.0
        for name, value in zip(names, values, strict=True):
            if value and top:
                height = max(1.5, value / top * HEIGHT)
                y = max(0.0, HEIGHT - below - height)
                x, width = place * step + step * GAP / 2, step * (1 - GAP)
                rects.append(Bar(name, round(x, 2), round(y, 2), round(width, 2), round(height, 2)))
                below += height
    return Bars(rects, names, top, rows)


def line(starts_s: Sequence[int], values: Sequence[float | None]) -> ChartLine:
    """One value over time; slots without one are bridged."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    top = max((value for _, value in known), default=0.0)
    step = WIDTH / max(1, len(starts_s) - 1)
    points = " ".join(
        f"{place * step:.1f},{HEIGHT - (value / top if top else 0) * (HEIGHT - 4) - 2:.1f}"
        for place, value in known
    )
    rows = [(_time(starts_s[place]), [value]) for place, value in known]
    return ChartLine(points, top, known[-1][1] if known else None, rows)


def _time(start_s: int) -> datetime:
    return datetime.fromtimestamp(start_s, UTC)
