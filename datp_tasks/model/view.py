"""All of a transaction that can be rebuilt from its journal, and the folding that does it.

The live hash in Redis, an archived copy of it and the folded journal must agree on a View: that
is what `datp audit` compares, and what a transaction is rebuilt from when Redis has lost it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from datp_tasks.model.journal import Entry
from datp_tasks.model.state import State, apply

#: Kind of an entry -> the status that it leads to; empty for one that leaves the status alone.
KINDS = {
    "claim": "running",
    "step": "",
    "queue": "queued",
    "crash": "queued",
    "wake": "queued",
    "sleep": "sleeping",
    "switch": "",
    "switch-wake": "queued",
    "cancel": "",
    "cancel-wake": "queued",
    "seize": "running",
    "park": "in-doubt",
    "final": "as told",
    "progress": "",
    "rebuild": "as told",
}
#: Kinds whose extra text is a part of the view; what has ended is not stopped any more.
NAMED = {
    "cancel": "cancel",
    "cancel-wake": "cancel",
    "seize": "cancel",
    "park": "problem",
    "progress": "progress",
    "final": "cancel",
}


@dataclass(slots=True)
class View:
    state: State
    status: str = "queued"
    version: int = 0
    fence: int = 0
    #: Some step may have had an effect.
    begun: bool = False
    wake_ms: int | None = None
    wake_switch: str | None = None
    switch_seq: int = 0
    #: Name -> "<number of the setting>:<JSON>"; a removed switch has no JSON.
    switches: dict[str, str] = field(default_factory=dict)
    cancel: str | None = None
    progress: str | None = None
    #: Why it is parked.
    problem: str | None = None
    #: Redis had lost it once: steps may have run of which nothing is known. Not a part of its
    #: story that must fit, since a transaction that was queued anew has no entry that says so.
    recreated: bool = field(default=False, compare=False)

    @classmethod
    def from_fields(cls, fields: Mapping[str, str], deltas: Iterable[str] = ()) -> View:
        """From a live hash, or a copy of one, and the deltas since its JSON was written."""
        state = State.from_json(fields["state"])
        for lines in deltas:
            for line in lines.split("\n"):
                apply(state, json.loads(line))
        wake = fields.get("wakeTime")
        return cls(
            state=state,
            status=fields["status"],
            version=int(fields["version"]),
            fence=int(fields["fence"]),
            begun=fields.get("begun") == "1",
            wake_ms=int(wake) if wake else None,
            wake_switch=fields.get("wakeSwitch"),
            switch_seq=int(fields.get("switchSeq", 0)),
            switches={n[7:]: text for n, text in fields.items() if n.startswith("switch:")},
            cancel=fields.get("cancel"),
            progress=fields.get("progress"),
            problem=fields.get("problem") if fields["status"] == "in-doubt" else None,
            recreated="recreated" in fields,
        )

    def to_fields(self) -> dict[str, str]:
        """For the live hash; status, fence and version are written by the script itself."""
        fields = {"state": self.state.to_json()}
        if self.begun:
            fields["begun"] = "1"
        if self.switches:
            fields["switchSeq"] = str(self.switch_seq)
            fields["switchCount"] = str(len(self.switches))
            fields.update({f"switch:{name}": text for name, text in self.switches.items()})
        optional = {
            "wakeTime": None if self.wake_ms is None else str(self.wake_ms),
            "wakeSwitch": self.wake_switch,
            "cancel": self.cancel,
            "progress": self.progress,
            "problem": self.problem,
            "recreated": "1" if self.recreated else None,
        }
        return fields | {name: text for name, text in optional.items() if text is not None}

    def fold(self, entries: Sequence[Entry]) -> View:
        """Change this view by entries that follow its version; itself, for the caller."""
        for entry in entries:
            for line in entry.deltas:
                delta = json.loads(line)
                apply(self.state, delta)
                self.begun = self.begun or delta["k"] == "begin"
            self.version, self.fence = entry.version, entry.fence
            self._turn(entry.kind, entry.extra)
        return self

    def _turn(self, kind: str, extra: str) -> None:
        if kind not in KINDS:
            raise ValueError(f"unknown kind of entry: {kind!r}")
        status = KINDS[kind]
        if status == "as told":
            status = "" if kind == "rebuild" and extra == self.status else extra
        if status:
            self.status = status
            self.wake_ms = self.wake_switch = self.problem = None
        if kind == "sleep":
            wake, _, switch = extra.partition(":")
            self.wake_ms, self.wake_switch = int(wake), switch or None
        elif kind in ("switch", "switch-wake"):
            name, _, value = extra.partition("=")
            self.switches[name] = value
            self.switch_seq = int(value.partition(":")[0])
        elif kind == "rebuild":
            self.recreated = True
        elif kind in NAMED:
            setattr(self, NAMED[kind], extra if kind != "final" else None)
