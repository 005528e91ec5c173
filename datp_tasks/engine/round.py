"""The round of a hop, seen by two threads: the one that runs steps, and the guard.

    idle      in the hop, but not part of this round
    waiting   its turn comes
    running   its function has been called; of those that run one after another only one
    pending   its function returned, but the SQL transaction that it shares is not committed
    done      has its outcome

The guard takes idle, waiting, pending and done ones away when what runs does not return. Whatever
was taken away is another worker's: the thread that runs steps never sees it again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datp_tasks.engine.run import Run


@dataclass(frozen=True, slots=True)
class Stuck:
    """What the guard takes out of a round whose steps do not return."""

    done: list[Run]
    #: Not run, or run in a transaction that will not be committed.
    waiting: list[Run]
    #: One that does not return, and for how long it has run.
    running: Run
    running_s: float


class Round:
    """Guarded by one lock; a hop has one, used for round after round."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._idle: list[Run] = []
        self._waiting: deque[Run] = deque()
        #: By run: when its function was called, and when it must have returned.
        self._running: dict[Run, tuple[float, float]] = {}
        self._pending: list[Run] = []
        self._done: list[Run] = []
        self._is_sealed = False
        self._was_broken_up = False

    def begin(self, runs: Sequence[Run], idle: Sequence[Run] = ()) -> None:
        with self._lock:
            self._clear()
            self._waiting = deque(runs)
            self._idle = list(idle)

    def end(self) -> tuple[list[Run], list[Run]]:
        """What was done here, and what was idle; without what was taken away."""
        with self._lock:
            done, idle = self._done, self._idle
            self._clear()
            return done, idle

    def waiting(self) -> list[Run]:
        with self._lock:
            return list(self._waiting)

    def next(self, limit_of: Callable[[Run], float], *, is_pending: bool = False) -> Run | None:
        """Start the next one, which may run for so long; the one before it returned."""
        with self._lock:
            if self._running:
                (self._pending if is_pending else self._done).extend(self._running)
                self._running.clear()
            if not self._waiting:
                return None
            run = self._waiting.popleft()
            now_s = time.monotonic()
            self._running[run] = (now_s, now_s + limit_of(run))
            return run

    def start(self, runs: Sequence[Run], limit_s: float) -> list[Run]:
        """Functions of several are about to be called; those that were not taken away."""
        with self._lock:
            wanted = set(runs)
            there = [run for run in self._waiting if run in wanted]
            self._waiting = deque(run for run in self._waiting if run not in wanted)
            now_s = time.monotonic()
            self._running.update(dict.fromkeys(there, (now_s, now_s + limit_s)))
            return there

    def extend(self, limit_s: float) -> None:
        """What runs is called (perhaps once more) only now: its time begins here."""
        with self._lock:
            until_s = time.monotonic() + limit_s
            self._running = {run: (since, until_s) for run, (since, _) in self._running.items()}

    def finish(self, runs: Sequence[Run] | None = None, *, is_pending: bool = False) -> None:
        """Functions returned: those of the given ones, or of whatever runs."""
        with self._lock:
            returned = list(self._running) if runs is None else runs
            for run in returned:
                self._running.pop(run, None)
            (self._pending if is_pending else self._done).extend(returned)

    # A transaction in SQL that several share.

    def seal(self) -> bool:
        """About to commit what is pending; False if some of that was taken away meanwhile."""
        with self._lock:
            self._is_sealed = not self._was_broken_up
            return self._is_sealed

    def committed(self) -> list[Run]:
        """What was pending is done."""
        with self._lock:
            pending, self._pending = self._pending, []
            self._is_sealed = False
            self._done += pending
            return pending

    def undone(self, done: Sequence[Run] = ()) -> list[Run]:
        """Nothing of it was committed: all but those that are done wait once more."""
        with self._lock:
            again = [run for run in (*self._pending, *self._running) if run not in done]
            self._waiting.extendleft(reversed(again))
            self._done += done
            self._pending, self._running = [], {}
            self._is_sealed = self._was_broken_up = False
            return again

    # The guard's side.

    def take_if_stuck(self, after_s: float) -> Stuck | None:
        """Everything but what runs, if that has been running for too long."""
        with self._lock:
            if not self._running or self._is_sealed:
                return None
            run, (since_s, _) = min(self._running.items(), key=lambda each: each[1][0])
            running_s = time.monotonic() - since_s
            waiting = [*self._pending, *self._waiting, *self._idle]
            if running_s < after_s or not (waiting or self._done):
                return None
            stuck = Stuck(self._done, waiting, run, running_s)
            self._was_broken_up |= bool(self._pending)
            self._done, self._pending, self._idle, self._waiting = [], [], [], deque()
            return stuck

    def overdue_s(self) -> float:
        """By how many seconds the one that runs longest is over its limit."""
        with self._lock:
            if not self._running:
                return 0.0
            return time.monotonic() - min(until_s for _, until_s in self._running.values())
