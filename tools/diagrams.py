"""The pictures of the documentation: `make diagrams` writes docs/states.svg and docs/flow.svg.

The states and their moves are read from the headers of the scripts (`Moves:` in live/lua), so the
picture cannot say anything else than they do; a test compares. A state that a script names and
that has no place in the picture is an error.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).resolve().parents[1]
LUA = ROOT / "datp_tasks" / "live" / "lua"
MOVE = re.compile(r"^  (\S+) -> (\S+)$", re.MULTILINE)

#: Where the states are, and whether they are real: "(lost)" is not in Redis.
PLACES = {
    "(none)": (130, 300),
    "queued": (430, 300),
    "running": (750, 300),
    "final": (1070, 300),
    "in-doubt": (575, 90),
    "(any)": (910, 90),
    "(lost)": (130, 530),
    "sleeping": (575, 530),
    "archived": (910, 530),
}
BOX = (190, 56)
#: How far the middle of an arrow is from the straight line, where it would hit something.
BENDS = {
    ("queued", "running"): 0.0,
    ("running", "queued"): 62.0,
    ("in-doubt", "queued"): 0.0,
    ("(lost)", "sleeping"): 0.0,
    ("(lost)", "in-doubt"): -66.0,
    ("sleeping", "archived"): 0.0,
    ("archived", "sleeping"): -62.0,
    ("final", "archived"): 0.0,
    ("archived", "final"): 44.0,
    ("sleeping", "running"): 34.0,
    ("running", "sleeping"): 34.0,
}

STYLE = """
  .paper { fill: #ffffff } text { fill: #1f2328; font: 14px sans-serif; text-anchor: middle }
  .name { font-weight: bold; font-size: 16px } .small { font-size: 12px }
  .label { paint-order: stroke; stroke: #ffffff; stroke-width: 6px; stroke-linejoin: round }
  .box { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.5 }
  .outside { fill: #f6f8fa; stroke: #818b98; stroke-dasharray: 5 4 }
  .arrow { fill: none; stroke: #59636e; stroke-width: 1.5; marker-end: url(#head) }
  .lane { stroke: #818b98; stroke-dasharray: 2 5 } #head path { fill: #59636e }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } text { fill: #f0f6fc } .label { stroke: #0d1117 }
    .box { fill: #12263f; stroke: #4493f8 } .outside { fill: #151b23; stroke: #9198a1 }
    .arrow { stroke: #9198a1 } #head path { fill: #9198a1 }
  }
"""

#: The way of a transaction: from, to, what happens. The same place twice: it works by itself.
LANES = ("client", "PostgreSQL", "Redis", "broker", "worker")
FLOW = (
    ("client", "PostgreSQL", "summary row: COMMIT = accepted"),
    ("client", "Redis", "create.lua: queued"),
    ("client", "broker", "bell: ids and sequence numbers"),
    ("broker", "worker", "bell of up to K transactions"),
    ("worker", "Redis", "claim.lua: running, new fence"),
    ("worker", "worker", "step 1"),
    ("worker", "Redis", "checkpoint.lua: step 1 closed, step 2 begun"),
    ("worker", "worker", "step 2 … n"),
    ("worker", "PostgreSQL", "final status, compare-and-set: COMMIT = final"),
    ("worker", "Redis", "finish.lua: archive due, PUBLISH"),
    ("Redis", "client", "notification; a webhook if one was asked for"),
    ("Redis", "PostgreSQL", "archiver: journal, state"),
)


def moves() -> dict[tuple[str, str], list[str]]:
    """(from, to) -> the scripts that do it."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(LUA.glob("*.lua")):
        header = path.read_text().partition("]]")[0]
        _, _, rest = header.partition("\nMoves:\n")
        for before, after in MOVE.findall(rest.partition("\nKEYS:")[0]):
            found[before, after].append(path.stem)
    return dict(found)


def states_svg() -> str:
    inner: list[str] = []
    loops: dict[str, list[str]] = {}
    for (before, after), scripts in moves().items():
        for name in (before, after):
            if name not in PLACES:
                raise ValueError(f"{', '.join(scripts)}: no place for {name!r} in PLACES")
        if before == after:
            loops[before] = scripts
        else:
            inner += _arrow(before, after, scripts)
    for name, (x, y) in PLACES.items():
        kind = "outside" if name.startswith("(") or name == "archived" else "box"
        inner.append(_box(x, y, kind))
        inner.append(_text(x, y - 2 if name in loops else y + 5, name, "name"))
        if name in loops:
            inner.append(_text(x, y + 16, ", ".join(loops[name]), "small"))
    return _svg(1190, 640, "States of a transaction in Redis, and the scripts that move it", inner)


def _arrow(before: str, after: str, scripts: list[str]) -> Iterator[str]:
    (x1, y1), (x2, y2) = PLACES[before], PLACES[after]
    length = math.hypot(x2 - x1, y2 - y1)
    bend = BENDS.get((before, after), 0.0)
    # The control point of a quadratic curve is twice as far as its middle.
    middle = (x1 + x2) / 2 - (y2 - y1) / length * bend, (y1 + y2) / 2 + (x2 - x1) / length * bend
    control = 2 * middle[0] - (x1 + x2) / 2, 2 * middle[1] - (y1 + y2) / 2
    start, end = _edge(x1, y1, *control), _edge(x2, y2, *control, gap=4)
    points = " ".join(f"{value:.0f}" for value in (*start, *control, *end))
    yield '<path class="arrow" d="M{} {} Q{} {} {} {}"/>'.format(*points.split())
    lines = wrap(", ".join(scripts), 22)
    for number, line in enumerate(lines):
        y = middle[1] + 5 + (number - (len(lines) - 1) / 2) * 16
        yield _text(middle[0], y, line, "label")


def _edge(x: float, y: float, to_x: float, to_y: float, gap: float = 0) -> tuple[float, float]:
    """Where a line from the middle of a box leaves it."""
    half_w, half_h = BOX[0] / 2 + gap, BOX[1] / 2 + gap
    dx, dy = to_x - x, to_y - y
    share = min(half_w / abs(dx) if dx else math.inf, half_h / abs(dy) if dy else math.inf)
    return x + dx * share, y + dy * share


def flow_svg() -> str:
    inner: list[str] = []
    x_of = {lane: 110 + 225 * number for number, lane in enumerate(LANES)}
    bottom = 110 + 52 * len(FLOW)
    for lane, x in x_of.items():
        inner.append(f'<line class="lane" x1="{x}" y1="70" x2="{x}" y2="{bottom}"/>')
        inner.append(_box(x, 42, "box"))
        inner.append(_text(x, 47, lane, "name"))
    for number, (before, after, what) in enumerate(FLOW, start=1):
        x1, x2, y = x_of[before], x_of[after], 80 + 52 * number
        if before == after:
            inner.append(f'<path class="arrow" d="M{x1} {y - 16} h60 v24 h-54"/>')
            inner.append(_text(x1 - 50, y, f"{number}. {what}", "label"))
            continue
        end = x2 - 4 if x2 > x1 else x2 + 4
        inner.append(f'<path class="arrow" d="M{x1} {y} H{end}"/>')
        inner.append(_text((x1 + x2) / 2, y - 8, f"{number}. {what}", "label"))
    return _svg(1130, bottom + 20, "The way of a transaction from submit to final", inner)


def _box(x: float, y: float, kind: str) -> str:
    width, height = BOX
    left, top = x - width / 2, y - height / 2
    place = f'x="{left:.0f}" y="{top:.0f}" width="{width}" height="{height}" rx="8"'
    return f'<rect class="{kind}" {place}/>'


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{escape(words)}</text>'


def _svg(width: int, height: int, title: str, inner: list[str]) -> str:
    head = (
        '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8"'
        ' markerHeight="8" orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z"/></marker>'
    )
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f"<defs>{head}</defs>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        *inner,
        "</svg>",
    )
    return "\n".join(lines) + "\n"


#: Where each picture belongs.
PICTURES = {"docs/states.svg": states_svg, "docs/flow.svg": flow_svg}


def main() -> None:
    for path, draw in PICTURES.items():
        (ROOT / path).write_text(draw())


if __name__ == "__main__":
    main()
