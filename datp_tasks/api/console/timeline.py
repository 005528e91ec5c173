"""The steps of a transaction over time, read off its journal: waits, tries, children, undo.

Versions of the journal are milliseconds of the Redis clock, so the journal is all it takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from datp_tasks.model.journal import BrokenJournal, Entry, living_branch
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.model.state import PipelineFrame, State, apply
from datp_tasks.model.state_payloads import with_payloads
from datp_tasks.model.view import KINDS
from datp_tasks.record.record_types import Summary

WIDTH = 1_000.0
WIDTH_MIN = 4.0
AT_THE_END = 970.0
#: Of one step: one that polls for days has thousands, and the page is sent again with each.
SEGMENTS_MAX = 200
#: Long waits are drawn shorter than they are, or nothing else could be seen.
LOG_MS = 50.0

VersionOf = Callable[[str, str], PipelineDefinition]


@dataclass(slots=True)
class Segment:
    """From one entry of the journal to the next."""

    status: str
    is_undo: bool
    from_ms: int
    to_ms: int
    x: float = 0.0
    width: float = 0.0

    @property
    def seconds(self) -> float:
        return (self.to_ms - self.from_ms) / 1_000


@dataclass(slots=True)
class StepRow:
    path: str
    #: As people count: the first step of its pipeline is 1.
    number: int
    #: How many steps its pipeline has.
    of: int
    depth: int
    pipeline: str
    name: str
    type: str
    group: str
    #: pending, current, done, called, undone, failed or doubt.
    state: str = "pending"
    #: It is being undone, or was.
    in_undo: bool = False
    is_point: bool = False
    tries: int = 0
    sleeps: int = 0
    errors: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    #: How many before them are not drawn.
    undrawn: int = 0
    ran_s: float = 0.0
    waited_s: float = 0.0
    #: What went in and what came out; for those who may see it.
    data: Any = None
    output: Any = None

    def add(self, segment: Segment) -> None:
        if segment.status == "running":
            self.ran_s += segment.seconds
        else:
            self.waited_s += segment.seconds
        self.segments.append(segment)
        if len(self.segments) > SEGMENTS_MAX:
            del self.segments[0]
            self.undrawn += 1


@dataclass(slots=True)
class Timeline:
    rows: list[StepRow]
    is_undoing: bool
    #: Marks on the time axis: where, and how long after the beginning.
    ticks: list[tuple[float, float]]
    #: Something of the journal is missing: what it shows is not all.
    is_broken: bool = False


class Drawing:
    """Folds a journal and keeps what was where, and when."""

    def __init__(
        self,
        summary: Summary,
        version_of: VersionOf,
        opened: Callable[[Any], Any] | None = None,
    ) -> None:
        self._version_of = version_of
        self._opened = opened
        self._state = State([PipelineFrame(summary.pipeline, summary.version)], summary.input)
        self._rows: dict[str, StepRow] = {}
        self._at_ms = int(summary.created_at.timestamp() * 1_000)
        self._status = "queued"
        self._summary = summary
        self._begun_ms = self._at_ms
        self._add_pipeline("", 0, summary.pipeline, summary.version)

    def draw(self, entries: Sequence[Entry], now_ms: int) -> Timeline:
        is_broken = False
        try:
            branch = living_branch(entries) if entries else []
        except BrokenJournal:
            branch, is_broken = list(entries), True
        try:
            for entry in branch:
                self._follow(entry)
        except (KeyError, IndexError, ValueError, TypeError):
            # Erased, or of a release that wrote it otherwise: what was read is shown.
            is_broken = True
        if self._summary.completed_at is None:
            self._pass(max(now_ms, self._at_ms))
        self._mark_current()
        rows = list(self._rows.values())
        ticks = _place(rows, self._begun_ms)
        return Timeline(
            rows=rows,
            is_undoing=any(row.in_undo for row in rows),
            ticks=ticks,
            is_broken=is_broken,
        )

    def _add_pipeline(self, above: str, depth: int, name: str, version: str) -> None:
        """All steps of a pipeline, below the step that called it."""
        definition = self._version_of(name, version)
        made = {
            path: StepRow(
                path=path,
                number=index + 1,
                of=len(definition.steps),
                depth=depth,
                pipeline=name,
                name=step.name or step.type,
                type=step.type,
                group=definition.group_of(index),
                is_point=step.final_from,
            )
            for index, step in enumerate(definition.steps)
            if (path := f"{above}.{index}" if above else str(index)) not in self._rows
        }
        before = list(self._rows.items())
        place = next((n + 1 for n, (path, _) in enumerate(before) if path == above), len(before))
        self._rows = dict([*before[:place], *made.items(), *before[place:]])

    def _here(self) -> tuple[StepRow | None, bool]:
        """The row that it is at, and whether that is being undone."""
        state = self._state
        if state.ending is not None:
            if state.ending.rollback and state.undo:
                return self._rows.get(state.undo[-1].path), True
            return None, False
        return self._rows.get(state.path), False

    def _pass(self, to_ms: int) -> None:
        row, is_undo = self._here()
        if row is not None and to_ms > self._at_ms:
            row.add(Segment(self._status, is_undo, self._at_ms, to_ms))
        self._at_ms = max(to_ms, self._at_ms)

    def _follow(self, entry: Entry) -> None:
        self._pass(entry.version)
        for line in entry.deltas:
            delta = json.loads(line)
            if self._opened is not None:
                delta = with_payloads(delta, self._opened)
            self._note(delta)
            apply(self._state, delta)
            if delta["k"] == "call":
                state = self._state
                above = ".".join(str(frame.index) for frame in state.stack[:-1])
                self._add_pipeline(above, len(state.stack) - 1, delta["p"], delta["v"])
        status = KINDS.get(entry.kind, "")
        if status == "as told":
            status = entry.extra if entry.kind == "final" else ""
        self._status = status or self._status

    def _note(self, delta: dict[str, Any]) -> None:
        """What a delta says of the row that it is about."""
        row, is_undo = self._here()
        if delta["k"] == "return":
            # It stands at the end of the child, and the step that called it is done.
            row = self._rows.get(".".join(str(frame.index) for frame in self._state.stack[:-1]))
            if row is not None:
                row.state, row.output = "done", delta.get("out", self._state.data)
            return
        if row is None:
            return
        match delta["k"]:
            case "begin":
                row.tries += not is_undo
            case "done":
                row.state, row.tries = "done", max(1, row.tries)
                row.data, row.output = self._state.data, delta.get("out", self._state.data)
            case "call":
                row.state, row.data = "called", self._state.data
            case "sleep":
                row.sleeps += 1
            case "undone":
                row.state, row.in_undo = "undone", True
            case _:
                self._note_trouble(row, delta)

    def _note_trouble(self, row: StepRow, delta: dict[str, Any]) -> None:
        match delta["k"]:
            case "error":
                row.errors.append(str(delta["note"]))
            case "crash":
                row.errors.append("its worker was lost")
            case "decide":
                row.errors.append(f"decided by a person: {delta['what']}, {delta['note']}")
            case "end" if delta["status"] != "success" and row.state == "pending":
                row.state, row.data = "failed", self._state.data
                row.errors += [str(delta["note"])] if delta["note"] else []

    def _mark_current(self) -> None:
        row, is_undo = self._here()
        if row is None or self._summary.completed_at is not None:
            return
        if is_undo:
            row.in_undo = True
        row.state = "doubt" if self._status == "in-doubt" else "current"


def _place(rows: Sequence[StepRow], begun_ms: int) -> list[tuple[float, float]]:
    """Put segments on an axis on which long times are shortened; the marks of that axis."""
    segments = [each for row in rows for each in row.segments]
    moments = sorted({begun_ms, *(m for each in segments for m in (each.from_ms, each.to_ms))})
    if len(moments) < 2:
        return []
    weights = [math.log1p((after - before) / LOG_MS) + 0.05 for before, after in pairwise(moments)]
    scale = WIDTH / sum(weights)
    at = dict(
        zip(moments, (each * scale for each in accumulate(weights, initial=0.0)), strict=True)
    )
    for each in segments:
        each.x = round(at[each.from_ms], 1)
        each.width = round(max(WIDTH_MIN, at[each.to_ms] - at[each.from_ms]), 1)
    return _ticks(moments, at, begun_ms)


def _ticks(moments: list[int], at: dict[int, float], begun_ms: int) -> list[tuple[float, float]]:
    """Some of the moments, so far from each other that their words do not touch."""
    ticks: list[tuple[float, float]] = []
    for moment in moments:
        # The words of the last one end at its place instead of beginning there.
        apart = WIDTH / 3.5 if at[moment] > AT_THE_END else WIDTH / 6
        if not ticks or at[moment] - ticks[-1][0] >= apart:
            ticks.append((round(at[moment], 1), (moment - begun_ms) / 1_000))
    return ticks
