"""A hop in a thread of its own, with the guard that a worker process would give it."""

from __future__ import annotations

import threading
from functools import partial

from datp_tasks.engine.guard import Guard
from datp_tasks.engine.orphaned_claims import OrphanedClaims
from datp_tasks.maintenance import reaper
from datp_tasks.testing import Kit


class GuardedHop:
    """What one bell does; `look` is what the guard does again and again."""

    def __init__(self, kit: Kit, step_type: str, pairs: list[tuple[str, int]]) -> None:
        self._kit = kit
        self._pairs = pairs
        self._task = kit.celery.tasks[f"datp.step.{step_type}"]
        self._is_made = threading.Event()
        self.kills: list[int] = []
        self.thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self.thread.start()
        assert self._is_made.wait(20)

    def _run(self) -> None:
        worker = self._kit.process.worker
        free = partial(reaper.take, self._kit.connections, worker.node)
        orphans = OrphanedClaims(self._kit.connections.live, worker.hop, worker.node, free)
        self._guard = Guard(
            self._kit.settings, worker.hop, orphans, kill=lambda: self.kills.append(1)
        )
        self._is_made.set()
        self._task.apply_async(args=(self._pairs,))

    def look(self) -> bool:
        """One look of the guard; True if something was stuck."""
        return self._guard.look()

    def join(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive()
