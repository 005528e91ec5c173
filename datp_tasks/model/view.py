"""The whole live transaction, rebuilt from its journal.

A journal entry is what one script call did: the time, the fence and its deltas. Folding all
entries over the accepted request gives the same picture as Redis has: the engine's state, the
status, and everything that is set from outside. Where it goes on is not part of the picture: that
follows from the state and the pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from datp_tasks.model.payload import Json
from datp_tasks.model.state import Delta, Frame, State, apply
from datp_tasks.model.status import Status


@dataclass(frozen=True, slots=True)
class Entry:
    """One script call: its deltas end at `last_sequence`."""

    last_sequence: int
    at_ms: int
    fence: int
    deltas: tuple[Delta, ...]

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

    @classmethod
    def from_fields(cls, fields: dict[str, str], deltas: Iterable[str] = ()) -> View:
        """From a live hash (or its copy in the archive) and the deltas after its JSON."""
        state = State.from_json(fields["state"])
        for text in deltas:
            for line in text.split("\n"):
                apply(state, json.loads(line))
        wake_time = fields.get("wakeTime")
        return cls(
            state,
            status=Status(fields["status"]),
            fence=int(fields.get("fence", 0)),
            version=int(fields.get("version", 0)),
            begun=fields.get("begun") == "1",
            wake_time_ms=int(wake_time) if wake_time else None,
            wake_switch=fields.get("wakeSwitch"),
            switches={
                name[7:]: value for name, value in fields.items() if name.startswith("switch:")
            },
            switch_seq=int(fields.get("switchSeq", 0)),
            cancel=fields.get("cancel"),
            progress=fields.get("progress"),
            problem=fields.get("problem") if fields["status"] == Status.IN_DOUBT else None,
        )

    def to_fields(self) -> dict[str, str]:
        """The fields of a live hash that this view determines."""
        fields: dict[str, Any] = {
            "status": str(self.status),
            "state": self.state.to_json(),
            "fence": str(self.fence),
            "version": str(self.version),
            "jsonVersion": str(self.version),
            "begun": "1" if self.begun else None,
            "wakeTime": None if self.wake_time_ms is None else str(self.wake_time_ms),
            "wakeSwitch": self.wake_switch,
            "switchSeq": str(self.switch_seq) if self.switch_seq else None,
            "switchCount": str(len(self.switches)) if self.switches else None,
            "cancel": self.cancel,
            "progress": self.progress,
            "problem": self.problem,
        }
        fields |= {f"switch:{name}": value for name, value in self.switches.items()}
        return {name: value for name, value in fields.items() if value is not None}


def fold(view: View, entries: Iterable[Entry]) -> View:
    """Apply entries in order; those the view has already are passed over."""
    for entry in entries:
        if entry.last_sequence <= view.version:
            continue
        if entry.first_sequence != view.version + 1:
            raise ValueError(f"deltas {view.version + 1} to {entry.first_sequence - 1} are missing")
        for delta in entry.deltas:
            _apply(view, delta, entry)
        view.version = entry.last_sequence
        view.fence = max(view.fence, entry.fence)
    return view


def _apply(view: View, delta: Delta, entry: Entry) -> None:
    transition = _TRANSITIONS.get(delta["k"])
    if transition is not None:
        transition(view, delta, entry)
        return
    if delta["k"] == "begin":
        view.begun = True
    apply(view.state, delta)


def _claimed(view: View, delta: Delta, _: Entry) -> None:
    view.status = Status.RUNNING
    view.wake_time_ms = view.wake_switch = None
    if delta.get("b"):
        view.begun = True
        view.state.open = True


def _queued(view: View, _delta: Delta, _: Entry) -> None:
    view.status = Status.QUEUED
    view.wake_time_ms = view.wake_switch = view.problem = None


def _asleep(view: View, delta: Delta, entry: Entry) -> None:
    view.status = Status.SLEEPING
    view.wake_time_ms = entry.at_ms + delta["ms"]
    view.wake_switch = delta.get("switch")


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


def _replaced(view: View, delta: Delta, _: Entry) -> None:
    """After a loss of Redis the picture was made anew; what led to it counts no more."""
    other = View.from_fields(delta["fields"])
    for name in View.__slots__:
        if name not in ("version", "fence"):
            setattr(view, name, getattr(other, name))


_TRANSITIONS = {
    "claim": _claimed,
    "queue": _queued,
    "asleep": _asleep,
    "park": _parked,
    "final": _ended,
    "switch": _switched,
    "cancel": _cancelled,
    "progress": _reported,
    "snapshot": _replaced,
}
