"""Processes that stand still while the other side of a comparison is measured."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from datp_tasks.local.processes import ManagedProcess


class Pausable:
    """Each with all its children: a process that the benchmark starts leads a group."""

    def __init__(self, *processes: ManagedProcess) -> None:
        self._groups = [process.pid for process in processes if process.pid is not None]
        if len(self._groups) < len(processes):
            raise AssertionError("a process has ended")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """They move only within `moving`; afterwards they can be stopped like any other."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    @contextmanager
    def moving(self) -> Iterator[None]:
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        for group in self._groups:
            # One that has ended must not keep the others standing.
            with suppress(ProcessLookupError):
                os.killpg(group, number)
