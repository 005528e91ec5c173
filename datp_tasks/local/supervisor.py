"""Keeps children alive: one that ends without being asked is started again, ever more slowly."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from datp_tasks.errors import LocalStackError

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
STEADY_AFTER_S = 60.0
CHECK_PERIOD_S = 0.1
STOP_POLL_S = 0.02


class Supervised(Protocol):
    """What can be supervised: a `ManagedProcess` or an embedded server."""

    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def exit_code(self) -> int | None: ...
    def start(self) -> None: ...
    def restart(self) -> None: ...
    def is_running(self) -> bool: ...
    def begin_stop(self) -> None: ...
    def stop_finished(self) -> bool: ...
    def kill(self) -> None: ...


@dataclass
class _Watched:
    child: Supervised
    stage: int
    started_at_s: float
    delay_s: float = FIRST_DELAY_S
    restart_at_s: float | None = None


class Supervisor:
    """Starts children in stages, watches them, and stops the stages in reverse order.

    It has no thread of its own: the caller's thread runs `run` (or calls `check` now and then),
    because Linux ties the life of a child to the thread that started it.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        on_change: Callable[[], None] = lambda: None,
        now_s: Callable[[], float] = time.monotonic,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:
        self._say = say
        self._on_change = on_change
        self._now_s = now_s
        self._sleep_s = sleep_s
        self._watched: list[_Watched] = []
        self._stages = 0

    @property
    def children(self) -> tuple[Supervised, ...]:
        return tuple(watched.child for watched in self._watched)

    def start(self, children: Sequence[Supervised]) -> None:
        """Start them in order, as one stage: they will be stopped together."""
        self._stages += 1
        for child in children:
            # Watched first, so that one whose start is interrupted is stopped with the others.
            self._watched.append(_Watched(child, self._stages, self._now_s()))
            child.start()
            self._watched[-1].started_at_s = self._now_s()
        self._on_change()

    def run(self, until: Callable[[], bool], *, between: Callable[[], None] = lambda: None) -> None:
        """Watch over the children until told to end; `between` two looks the caller has a turn."""
        while not until():
            self.check()
            between()
            self._sleep_s(CHECK_PERIOD_S)

    def check(self) -> None:
        """Look at each child once; never waits."""
        for watched in self._watched:
            if watched.restart_at_s is not None:
                if self._now_s() >= watched.restart_at_s:
                    self._start_again(watched)
            elif not watched.child.is_running():
                self._schedule(watched, f"exited ({_reason(watched.child.exit_code)})")

    def stop(self, forced: Callable[[], bool] = lambda: False) -> None:
        """Stop all of them, the last stage first; once `forced` says so, kill the rest at once."""
        for stage in self._stages_from_last():
            for child in stage:
                child.begin_stop()
            while stage:
                if forced():
                    for child in stage:
                        child.kill()
                stage = [child for child in stage if not self._has_stopped(child)]
                if stage:
                    self._sleep_s(STOP_POLL_S)
        self._watched.clear()

    def _start_again(self, watched: _Watched) -> None:
        watched.restart_at_s = None
        watched.started_at_s = self._now_s()
        try:
            watched.child.restart()
        except (OSError, LocalStackError) as error:
            self._schedule(watched, f"cannot be started ({error})")
        else:
            self._on_change()

    def _schedule(self, watched: _Watched, what_happened: str) -> None:
        now_s = self._now_s()
        if now_s - watched.started_at_s >= STEADY_AFTER_S:
            watched.delay_s = FIRST_DELAY_S
        delay_s = watched.delay_s
        watched.restart_at_s = now_s + delay_s
        watched.delay_s = min(delay_s * 2, LONGEST_DELAY_S)
        self._say(f"{watched.child.name} {what_happened}, starting again in {delay_s:.1f} s")

    def _has_stopped(self, child: Supervised) -> bool:
        try:
            return child.stop_finished()
        except LocalStackError as error:
            self._say(str(error))
            return True

    def _stages_from_last(self) -> Iterator[list[Supervised]]:
        for _, stage in groupby(reversed(self._watched), key=lambda watched: watched.stage):
            yield [watched.child for watched in stage]


def _reason(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        try:
            return f"by {signal.Signals(-exit_code).name}"
        except ValueError:
            return f"by signal {-exit_code}"
    return f"code {exit_code}"
