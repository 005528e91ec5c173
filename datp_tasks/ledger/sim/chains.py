"""What the stand-in remembers and forgets, after the sources of Sawtooth 1.2 and Splinter.

Time is a number of seconds that the caller gives. Nothing runs by itself: what is due by then is
executed when a client looks.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

#: A transaction whose payload holds this is refused by the contract.
POISON = b'"simulate":"invalid"'


@dataclass(kw_only=True)
class Options:
    """What can be changed while it runs."""

    #: From acceptance to execution.
    commit_ms: float = 20
    #: Sawtooth: from the answer 202 until the batch shows as pending.
    unknown_ms: float = 0
    #: Sawtooth: a second submission within this time is answered 202 and ignored.
    swallow_s: float = 1_200
    #: Sawtooth: how long an invalid batch is remembered.
    invalid_s: float = 600
    pending_max: int = 300
    #: Scabbard: executed, but not yet committed.
    valid_ms: float = 0
    #: Scabbard: how many batches its memory holds.
    history_max: int = 100
    #: Scabbard: what becomes of a batch that is executed again.
    second_run: str = "invalid"


@dataclass(frozen=True, slots=True)
class Execution:
    """One line of the oracle."""

    number: int
    ledger: str
    service: str
    batch: str
    result: str


@dataclass
class Log:
    lines: list[Execution] = field(default_factory=list)

    def add(self, ledger: str, service: str, batch: str, result: str) -> None:
        self.lines.append(Execution(len(self.lines) + 1, ledger, service, batch, result))


class Full(Exception):
    """The queue takes nothing more."""


class SawtoothChain:
    """One validator. Duplicates are dropped; only what is committed survives a restart."""

    def __init__(self, options: Options, log: Log) -> None:
        self._options = options
        self._log = log
        self._committed: set[str] = set()
        self._pending: OrderedDict[str, tuple[float, float, bytes]] = OrderedDict()
        self._invalid: dict[str, float] = {}
        self._seen_until: dict[str, float] = {}

    def submit(self, batch: str, content: bytes, now_s: float) -> None:
        self.settle(now_s)
        if batch in self._committed or self._seen_until.get(batch, now_s) > now_s:
            return
        if len(self._pending) >= self._options.pending_max:
            raise Full
        self._seen_until[batch] = now_s + self._options.swallow_s
        shows_s = now_s + self._options.unknown_ms / 1_000
        due_s = max(shows_s, now_s + self._options.commit_ms / 1_000)
        self._pending[batch] = (shows_s, due_s, content)

    def settle(self, now_s: float) -> None:
        """Execute what is due, first in, first out."""
        while self._pending:
            batch, (_, due_s, content) = next(iter(self._pending.items()))
            if due_s > now_s:
                return
            del self._pending[batch]
            bad = POISON in content
            self._log.add("sawtooth", "", batch, "INVALID" if bad else "COMMITTED")
            if bad:
                self._invalid[batch] = due_s + self._options.invalid_s
            else:
                self._committed.add(batch)

    def status(self, batch: str, now_s: float) -> dict[str, Any]:
        self.settle(now_s)
        reasons: list[dict[str, str]] = []
        if batch in self._committed:
            word = "COMMITTED"
        elif self._invalid.get(batch, now_s) > now_s:
            word = "INVALID"
            reasons = [{"id": batch[:64], "message": "the contract said no"}]
        elif batch in self._pending and self._pending[batch][0] <= now_s:
            word = "PENDING"
        else:
            word = "UNKNOWN"
        return {"id": batch, "status": word, "invalid_transactions": reasons}

    def has_committed(self, batch: str, now_s: float) -> bool:
        self.settle(now_s)
        return batch in self._committed

    def restart(self, now_s: float) -> None:
        """Everything but the block store is gone."""
        self.settle(now_s)
        for memory in (self._pending, self._invalid, self._seen_until):
            memory.clear()


class ScabbardService:
    """One service of a circuit. It checks for no duplicates, and its memory is short."""

    #: It takes nothing more from the first number on, until there are fewer than the second.
    FULL_AT, OPEN_BELOW = 30, 15

    def __init__(self, name: str, options: Options, log: Log) -> None:
        self._name = name
        self._options = options
        self._log = log
        self._history: OrderedDict[str, str] = OrderedDict()
        self._queue: list[tuple[float, str, bytes]] = []
        self._valid: list[tuple[float, str]] = []
        #: Its state, which survives: a batch that is in it already changes nothing any more.
        self._executed: set[str] = set()
        self._full = False

    def submit(self, batch: str, content: bytes, now_s: float) -> None:
        self.settle(now_s)
        self._full = len(self._queue) >= (self.OPEN_BELOW if self._full else self.FULL_AT)
        if self._full:
            raise Full
        self._note(batch, "Pending")
        last_s = self._queue[-1][0] if self._queue else now_s
        due_s = max(last_s, now_s + self._options.commit_ms / 1_000)
        self._queue.append((due_s, batch, content))

    def settle(self, now_s: float) -> None:
        while self._queue and self._queue[0][0] <= now_s:
            due_s, batch, content = self._queue.pop(0)
            again = batch in self._executed
            bad = POISON in content or (again and self._options.second_run == "invalid")
            self._executed.add(batch)
            self._log.add("scabbard", self._name, batch, "INVALID" if bad else "COMMITTED")
            if bad:
                self._note(batch, "Invalid")
            else:
                self._note(batch, "Valid")
                self._valid.append((due_s + self._options.valid_ms / 1_000, batch))
        while self._valid and self._valid[0][0] <= now_s:
            self._note(self._valid.pop(0)[1], "Committed")

    def status(self, batch: str, now_s: float) -> dict[str, Any]:
        self.settle(now_s)
        word = self._history.get(batch, "Unknown")
        message: list[dict[str, Any]] = []
        if word in ("Valid", "Committed"):
            message = [{"transaction_id": batch[:64]}]
        elif word == "Invalid":
            why = {"error_message": "the contract said no", "error_data": []}
            message = [{"transaction_id": batch[:64], **why}]
        seconds = {"secs_since_epoch": 0, "nanos_since_epoch": 0}
        return {
            "id": batch,
            "status": {"statusType": word, "message": message},
            "timestamp": seconds,
        }

    def restart(self, now_s: float) -> None:
        """The memory of batches is gone, and with it what was waiting."""
        self.settle(now_s)
        self._history.clear()
        self._queue.clear()
        self._valid.clear()
        self._full = False

    def _note(self, batch: str, word: str) -> None:
        self._history.pop(batch, None)
        self._history[batch] = word
        while len(self._history) > self._options.history_max:
            self._history.popitem(last=False)
