"""What the scripts should do, as a few lines of Python about one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from datp_tasks.model.journal import Entry
from datp_tasks.model.state import BEGIN, CRASH, Delta, State, apply, delta_json
from datp_tasks.model.status import FINAL
from datp_tasks.model.view import View

#: Entries of the journal with the transaction that each belongs to, in the order of writing.
Log = list[tuple[str, Entry]]


def following(previous: int, now_ms: int) -> int:
    """Versions and fences grow, and follow the clock."""
    return max(previous + 1, now_ms)


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
    #: Where all transactions write what they do.
    log: Log
    #: With everything that was done since the JSON was written.
    state: State = field(init=False)
    status: str = "queued"
    sequence: int = 1
    fence: int = 0
    version: int = 0
    json_version: int = 0
    #: Items of the list in Redis, each the lines of one script call.
    deltas: list[str] = field(default_factory=list)
    #: The journal from the first state to this one.
    entries: list[Entry] = field(default_factory=list)
    node: str | None = None
    begun: bool = False
    #: Redis had lost it.
    recreated: bool = False
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
    #: It has left memory.
    gone: bool = False

    def __post_init__(self) -> None:
        self.state = State.from_json(self.json)

    @property
    def ended(self) -> bool:
        return self.status in FINAL

    @property
    def found(self) -> str:
        """What a script finds of it."""
        return "UNKNOWN" if self.gone else self.status

    @property
    def is_idle(self) -> bool:
        return self.ended or self.status in ("sleeping", "in-doubt")

    @property
    def asleep_elsewhere(self) -> bool:
        return self.gone and self.status == "sleeping"

    def held_by(self, hold: Hold) -> bool:
        return self.status == "running" and self.fence == hold.fence

    def copied(self) -> Modelled:
        """As it is now, whatever happens to it later; it writes into the same log."""
        log, self.log = self.log, []
        copy = deepcopy(self)
        self.log = copy.log = log
        return copy

    # What changes, by the name of the script.

    def claim(self, now_ms: int, node: str, *, opens: bool) -> None:
        deltas = [BEGIN] if opens else []
        self._run(now_ms, node)
        self._record(now_ms, "claim", deltas, node)
        self._keep(deltas)

    def checkpoint(self, now_ms: int, deltas: Sequence[Delta], *, snapshot: bool) -> None:
        self._record(now_ms, "step", deltas)
        self._keep(deltas)
        self.archive_due = self.archive_due or snapshot

    def hand_over(self, now_ms: int, deltas: Sequence[Delta], *, snapshot: bool) -> None:
        self._record(now_ms, "queue", deltas)
        self._write_json()
        self._enqueue()
        self.archive_due = self.archive_due or snapshot

    def sleep(self, now_ms: int, deltas: Sequence[Delta], wake_ms: int, switch: str) -> None:
        self._record(now_ms, "sleep", deltas, f"{wake_ms}:{switch}")
        self._write_json()
        self._leave()
        self.status, self.wake_ms, self.wake_switch = "sleeping", wake_ms, switch or None
        self.priority = "out"
        self.archive_due = True

    def park(self, now_ms: int, deltas: Sequence[Delta], problem: str) -> None:
        self._record(now_ms, "park", deltas, problem)
        self._write_json()
        self._leave()
        self.status, self.problem = "in-doubt", problem
        self.archive_due = True

    def resolve(self, now_ms: int, deltas: Sequence[Delta], fence: int) -> None:
        self.fence = fence
        self._record(now_ms, "queue", deltas)
        self._write_json()
        self._enqueue()
        self.archive_due = False

    def finish(self, now_ms: int, deltas: Sequence[Delta], status: str) -> None:
        self.follow_sql(now_ms, status, deltas)
        self._write_json()

    def follow_sql(self, now_ms: int, status: str, deltas: Sequence[Delta] = ()) -> None:
        self._record(now_ms, "final", deltas, status)
        self._leave()
        self.status = status
        self.cancel = self.problem = None
        self.archive_due = True
        self.leaves = False

    def take_over(self, now_ms: int, fence: int) -> None:
        self.fence = fence
        self._record(now_ms, "crash", [CRASH])
        self._keep([CRASH])
        self._enqueue()

    def wake(self, now_ms: int) -> None:
        self._record(now_ms, "wake")
        self._stir()

    def set_switch(self, now_ms: int, name: str, value: str) -> None:
        self.switch_seq += 1
        self.switches[name] = (self.switch_seq, value)
        wakes = self.wake_switch == name
        setting = f"{name}={self.switch_seq}:{value}"
        self._record(now_ms, "switch-wake" if wakes else "switch", extra=setting)
        if wakes:
            self._stir()
        elif self.status == "sleeping":
            self.archive_due, self.leaves = True, False

    def ask_to_stop(self, now_ms: int, reason: str) -> None:
        if self.cancel is None:
            self.cancel = reason
            self._record(now_ms, "cancel", extra=reason)

    def seize(self, now_ms: int, reason: str, node: str) -> None:
        self._run(now_ms, node)
        if self.recreated:
            # It may have begun before the loss: it must be parked, and no worker may end it.
            self._record(now_ms, "claim", extra=self.cancel or reason)
        else:
            self.cancel = self.cancel or reason
            self._record(now_ms, "seize", extra=self.cancel)
        self.archive_due = self.leaves = False

    def stop_and_wake(self, now_ms: int, reason: str) -> None:
        self.cancel = self.cancel or reason
        self._record(now_ms, "cancel-wake", extra=self.cancel)
        self._stir()

    def report_progress(self, now_ms: int, report: str) -> None:
        self.progress = report
        self._record(now_ms, "progress", extra=report)

    def confirm(self, now_ms: int, sleeping_ms: int) -> bool:
        """SQL has a copy; whether it leaves memory for that."""
        self.archive_due = False
        sleeps_on = self.status == "sleeping" and (self.wake_ms or 0) - now_ms > sleeping_ms
        self.leaves = self.leaves or self.ended or sleeps_on
        return self.ended or sleeps_on

    def restore(self, now_ms: int, view: View, branch: Sequence[Entry], *, leaves: bool) -> None:
        """Bring back what SQL has, over whatever is here."""
        self.sequence = following(0 if self.gone else self.sequence, now_ms // 1_000)
        self.gone = False
        self._leave()
        self.state, self.status, self.begun = view.state, view.status, view.begun
        self.recreated = view.recreated
        self.version, self.fence, self.entries = view.version, view.fence, list(branch)
        self.wake_ms, self.wake_switch = view.wake_ms, view.wake_switch
        self.cancel, self.progress, self.problem = view.cancel, view.progress, view.problem
        parts = {name: text.partition(":") for name, text in view.switches.items()}
        self.switches = {name: (int(part[0]), part[2]) for name, part in parts.items()}
        self.switch_seq = view.switch_seq
        self.priority = "out"
        self.leaves = leaves
        self.archive_due = not leaves and self.status != "queued"
        self._write_json()

    def rebuild(
        self,
        now_ms: int,
        view: View,
        branch: Sequence[Entry],
        fence: int,
        deltas: Sequence[Delta],
    ) -> None:
        """The same after a loss: whoever ran it does so no more."""
        self.restore(now_ms, view, branch, leaves=False)
        self.fence = fence
        status = "queued" if self.status == "running" else self.status
        self.status, self.archive_due = status, status != "queued"
        self._record(now_ms, "rebuild", deltas, status)
        self.recreated = True
        self._write_json()

    # What several of them do.

    def _record(
        self, now_ms: int, kind: str, deltas: Sequence[Delta] = (), extra: str = ""
    ) -> None:
        before, self.version = self.version, following(self.version, now_ms)
        entry = Entry(self.version, before, self.fence, kind, lines_of(deltas), extra)
        self.entries.append(entry)
        self.log.append((self.tx_id, entry))
        for delta in deltas:
            apply(self.state, delta)
            self.begun = self.begun or delta is BEGIN

    def _keep(self, deltas: Sequence[Delta]) -> None:
        if deltas:
            self.deltas.append(lines_of(deltas))

    def _write_json(self) -> None:
        self.json, self.json_version, self.deltas = self.state.to_json(), self.version, []

    def _run(self, now_ms: int, node: str) -> None:
        self._leave()
        self.status, self.node = "running", node
        self.fence = following(self.fence, now_ms)
        self.problem = None

    def _enqueue(self) -> None:
        self._leave()
        self.status, self.priority = "queued", "out"
        self.sequence += 1
        self.problem = None

    def _stir(self) -> None:
        self._enqueue()
        self.archive_due = self.leaves = False

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
            "jsonVersion": self.json_version,
            "node": self.node,
            "begun": "1" if self.begun else None,
            "recreated": "1" if self.recreated else None,
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


def lines_of(deltas: Sequence[Delta]) -> str:
    return "\n".join(map(delta_json, deltas))
