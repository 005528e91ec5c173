"""The whole live transaction, rebuilt from its journal.

A journal entry is what one script call did: the time, the fence and its deltas. Folding all
entries over the accepted request gives the same picture as Redis has: the engine's state, the
status, and everything that is set from outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from datp_tasks.model.payload import Json
from datp_tasks.model.state import Delta, Frame, State, apply
from datp_tasks.model.status import Status


@dataclass(frozen=True, slots=True)
class Entry:
    """One script call: `deltas` end at `last_sequence`."""

    last_sequence: int
    at_ms: int
    fence: int
    deltas: tuple[str, ...]

    @property
    def first_sequence(self) -> int:
        return self.last_sequence - len(self.deltas) + 1


@dataclass(slots=True)
class View:
    """What can be known of a transaction without Redis."""

    state: State
    status: Status = Status.QUEUED
    fence: int = 0
    version: int = 0
    begun: bool = False
    group: str = ""
    step_type: str = ""
    place: str = ""
    priority: str = "in"
    wake_time_ms: int | None = None
    wake_switch: str | None = None
    #: Name -> "<sequence>:<JSON value>", as in Redis.
    switches: dict[str, str] = field(default_factory=dict)
    switch_seq: int = 0
    cancel: str | None = None
    progress: str | None = None
    problem: str | None = None

    @classmethod
    def accepted(cls, pipeline: str, version: str, data: Json) -> View:
        """Before the first entry: all that the accept commit says."""
        return cls(State([Frame(pipeline, version)], data))


def fold(view: View, entries: Iterable[Entry]) -> View:
    """Apply entries in order; those the view has already are passed over."""
    for entry in entries:
        if entry.last_sequence <= view.version:
            continue
        if entry.first_sequence != view.version + 1:
            raise ValueError(f"deltas {view.version + 1} to {entry.first_sequence - 1} are missing")
        for text in entry.deltas:
            _apply(view, json.loads(text), entry)
        view.version = entry.last_sequence
        view.fence = max(view.fence, entry.fence)
    return view


def _apply(view: View, delta: Delta, entry: Entry) -> None:
    transition = _TRANSITIONS.get(delta["k"])
    if transition is not None:
        transition(view, delta, entry)
    else:
        if delta["k"] == "begin":
            view.begun = True
        apply(view.state, delta)


def _claimed(view: View, delta: Delta, _: Entry) -> None:
    view.status = Status.RUNNING
    if delta.get("b"):
        view.begun = True
        view.state.open = True


def _queued(view: View, delta: Delta, _: Entry) -> None:
    view.status = Status.QUEUED
    view.wake_time_ms = view.wake_switch = view.problem = None
    _place(view, delta)


def _asleep(view: View, delta: Delta, entry: Entry) -> None:
    view.status = Status.SLEEPING
    view.wake_time_ms = entry.at_ms + delta["ms"]
    view.wake_switch = delta.get("switch")
    _place(view, delta)


def _placed(view: View, delta: Delta, _: Entry) -> None:
    _place(view, delta)


def _parked(view: View, delta: Delta, _: Entry) -> None:
    view.status = Status.IN_DOUBT
    view.problem = delta["note"]


def _ended(view: View, delta: Delta, _: Entry) -> None:
    view.status = Status(delta["status"])
    view.wake_time_ms = view.wake_switch = view.cancel = view.problem = None


def _switched(view: View, delta: Delta, _: Entry) -> None:
    view.switch_seq += 1
    view.switches[delta["n"]] = f"{view.switch_seq}:{delta['v']}"


def _cancelled(view: View, delta: Delta, _: Entry) -> None:
    view.cancel = view.cancel or delta["r"]


def _reported(view: View, delta: Delta, _: Entry) -> None:
    view.progress = delta["r"]


def _place(view: View, delta: Delta) -> None:
    view.group = delta.get("g", view.group)
    view.step_type = delta.get("t", view.step_type)
    view.place = delta.get("at", view.place)
    view.priority = delta.get("pr", view.priority)


_TRANSITIONS = {
    "claim": _claimed,
    "queue": _queued,
    "asleep": _asleep,
    "place": _placed,
    "park": _parked,
    "final": _ended,
    "switch": _switched,
    "cancel": _cancelled,
    "progress": _reported,
}
