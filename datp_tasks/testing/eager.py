"""Eager mode: a bell runs its task at once, in this process.

A bell that is rung while another one runs waits for its turn, so that a pipeline with a thousand
hops does not become a thousand nested calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from datp_tasks.bells.broker import TASK_PREFIX
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.ledger.batch_types import Work
from datp_tasks.ledger.submit_bell import SUBMIT_TASK

if TYPE_CHECKING:
    from celery import Celery

    from datp_tasks.runtime.worker_process import WorkerProcess


class EagerSend:
    def __init__(self, app: Celery) -> None:
        self._app = app
        self.process: WorkerProcess | None = None
        self._waiting: deque[tuple[str, list[tuple[str, int]], str]] = deque()
        self._running = False
        #: Set to keep bells from being heard, as a broker that loses messages would.
        self.deaf = False
        #: Every bell that was rung: step type and pairs.
        self.rung: list[tuple[str, list[tuple[str, int]]]] = []
        self.crashes = 0

    def __call__(
        self,
        step_type: str,
        pairs: list[tuple[str, int]],
        *,
        group: str,
        priority: str,
        answers: str = "",
    ) -> None:
        self.rung.append((step_type, pairs))
        if self.deaf:
            return
        self._waiting.append((step_type, pairs, answers))
        if not self._running:
            self._drain()

    def _drain(self) -> None:
        self._running = True
        try:
            while self._waiting:
                self._run(*self._waiting.popleft())
        finally:
            self._running = False

    def _run(self, step_type: str, pairs: list[tuple[str, int]], answers: str) -> None:
        task = self._app.tasks.get(TASK_PREFIX + step_type)
        if task is None:
            assert self.process is not None
            self.process.note_unknown_step(TASK_PREFIX + step_type, pairs)
            return
        try:
            task.apply_async(args=(pairs, answers))
        except SimulatedCrash:
            # The worker died, not the one who rang.
            self.crashes += 1


class EagerRing:
    """The same for submit messages of the ledger room."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._waiting: deque[list[Work]] = deque()
        self._running = False
        self.deaf = False
        #: Every message that was sent.
        self.rung: list[list[Work]] = []
        self.crashes = 0

    def __call__(self, works: Sequence[Work]) -> None:
        self.rung.append(list(works))
        if self.deaf:
            return
        self._waiting.append(list(works))
        if self._running:
            return
        self._running = True
        try:
            while self._waiting:
                self._run(self._waiting.popleft())
        finally:
            self._running = False

    def _run(self, works: list[Work]) -> None:
        try:
            self._app.tasks[SUBMIT_TASK].apply_async(args=([list(work) for work in works],))
        except SimulatedCrash:
            self.crashes += 1
