"""The transactions of one hop, seen by two threads: the one that runs steps, and the watchman."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from datp_tasks.engine.run import Run


@dataclass(frozen=True, slots=True)
class Stuck:
    """What a watchman takes out of a vector whose current step does not return."""

    done: list[Run]
    waiting: list[Run]
    current: Run
    current_s: float


class Vector:
    """One round: runs wait, one is current, the rest are done. Guarded by one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Run] = deque()
        self._done: list[Run] = []
        self._current: Run | None = None
        self._since_s = 0.0
        self._limit_s = 0.0

    def start_round(self, runs: Sequence[Run]) -> None:
        with self._lock:
            self._waiting = deque(runs)
            self._done = []
            self._current = None

    def next(self, limit_s: float | None = None) -> Run | None:
        """The next run to perform; the one before counts as done."""
        with self._lock:
            self._put_away()
            if not self._waiting:
                return None
            self._current = self._waiting.popleft()
            self._since_s = time.monotonic()
            return self._current

    def leave(self) -> None:
        """The current run is not part of the round any more."""
        with self._lock:
            self._current = None

    def limit(self, limit_s: float) -> None:
        """How long the current step may take at most."""
        self._limit_s = limit_s

    def end_round(self) -> list[Run]:
        """The runs that were performed here and not taken away."""
        with self._lock:
            self._put_away()
            done, self._done = self._done, []
            return done

    def take_if_stuck(self, after_s: float) -> Stuck | None:
        """Everything but the current run, if that one has been running for too long."""
        with self._lock:
            if self._current is None:
                return None
            current_s = time.monotonic() - self._since_s
            if current_s < after_s or not (self._waiting or self._done):
                return None
            stuck = Stuck(self._done, list(self._waiting), self._current, current_s)
            self._done, self._waiting = [], deque()
            return stuck

    def overdue_s(self) -> float:
        """By how many seconds the current step is over its limit."""
        with self._lock:
            if self._current is None or not self._limit_s:
                return 0.0
            return time.monotonic() - self._since_s - self._limit_s

    def _put_away(self) -> None:
        if self._current is not None:
            self._done.append(self._current)
            self._current = None
