"""What the scripts should do, as a few lines of Python about one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field

from datp_tasks.model.status import FINAL

GOES_ON = ("queued", "running", "sleeping", "in-doubt")


@dataclass(frozen=True)
class Hold:
    """What a worker remembers of a claim, for as long as it likes."""

    tx_id: str
    fence: int
    node: str
    #: Switch settings that it has seen.
    seen: int


@dataclass
class Modelled:
    tx_id: str
    json: str
    status: str = "queued"
    sequence: int = 1
    fence: int = 0
    version: int = 0
    deltas: int = 0
    node: str | None = None
    begun: bool = False
    cancel: str | None = None
    problem: str | None = None
    progress: str | None = None
    priority: str = "in"
    wake_ms: int | None = None
    wake_switch: str | None = None
    switch_seq: int = 0
    #: Name -> (number of the setting, value); removed ones have an empty value.
    switches: dict[str, tuple[int, str]] = field(default_factory=dict)
    archive_due: bool = False
    leaves: bool = False

    @property
    def ended(self) -> bool:
        return self.status in FINAL

    def held_by(self, hold: Hold) -> bool:
        return self.status == "running" and self.fence == hold.fence

    # What changes, by the name of the script.

    def claim(self, fence: int, node: str, *, opens: bool = False) -> None:
        self._leave()
        self.status, self.fence, self.node = "running", fence, node
        self.archive_due = False
        self.problem = None
        if opens:
            self.add_deltas(1)
            self.begun = True

    def add_deltas(self, count: int) -> None:
        self.version += count
        self.deltas += count

    def write_json(self, json: str, count: int) -> None:
        self.version += count
        self.deltas = 0
        self.json = json

    def enqueue(self, priority: str = "out") -> None:
        self._leave()
        self.status, self.priority = "queued", priority
        self.sequence += 1
        self.problem = None
        self.archive_due = False

    def sleep(self, wake_ms: int, switch: str) -> None:
        self._leave()
        self.status, self.wake_ms, self.wake_switch = "sleeping", wake_ms, switch or None
        self.priority = "out"
        self.archive_due = True

    def park(self, problem: str) -> None:
        self._leave()
        self.status, self.problem = "in-doubt", problem

    def finish(self, status: str) -> None:
        self._leave()
        self.status = status
        self.cancel = self.problem = None
        self.archive_due = True

    def set_switch(self, name: str, value: str) -> None:
        self.switch_seq += 1
        self.switches[name] = (self.switch_seq, value)

    def _leave(self) -> None:
        self.node = self.wake_ms = self.wake_switch = None

    # What must be found in Redis.

    def fields(self) -> dict[str, str]:
        """The fields that scripts write, as far as they are there."""
        found: dict[str, object] = {
            "status": self.status,
            "state": self.json,
            "sequence": self.sequence,
            "fence": self.fence,
            "version": self.version,
            "jsonVersion": self.version - self.deltas,
            "node": self.node,
            "begun": "1" if self.begun else None,
            "cancel": self.cancel,
            "problem": self.problem,
            "progress": self.progress,
            "priority": self.priority,
            "wakeTime": self.wake_ms,
            "wakeSwitch": self.wake_switch,
            "switchSeq": self.switch_seq or None,
            "switchCount": len(self.switches) or None,
        }
        for name, (sequence, value) in self.switches.items():
            found[f"switch:{name}"] = f"{sequence}:{value}"
        return {name: str(value) for name, value in found.items() if value is not None}

    def lists(self) -> set[str]:
        by_status = {
            "queued": {"queuedZ"},
            "running": {"processingZ"},
            "sleeping": {"sleepingZ"},
            "in-doubt": {"exceptionZ"},
        }
        return by_status.get(self.status, set()) | ({"toArchiveZ"} if self.archive_due else set())
