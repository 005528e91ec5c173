"""A hop in a thread of its own, under a guard whose looks the test decides on.

Bells reach no worker by themselves: the thread of the test is the other worker, and hears what was
rung when it says so. The guard does not kill this process; it lets the node fall silent instead.
"""

from __future__ import annotations

import threading
from functools import partial

from datp_tasks.bells.broker import TASK_PREFIX
from datp_tasks.engine.guard import Guard
from datp_tasks.engine.orphaned_claims import OrphanedClaims
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

Pairs = list[tuple[str, int]]


class GuardedHop:
    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.kills = 0
        self.guard: Guard
        self._thread: threading.Thread
        self._heard = 0
        self._has_guard = threading.Event()

    def start(self, step_type: str, pairs: Pairs) -> None:
        """One bell, taken by a worker that has nothing else to do."""
        self.kit.lose_bells()
        self._heard = len(self.kit.send.rung)
        self._thread = threading.Thread(target=self._run, args=(step_type, pairs))
        self._thread.start()
        assert self._has_guard.wait(20)

    def looks(self) -> bool:
        return self.guard.look()

    def was_killed(self) -> bool:
        """Whether it is by now; for `eventually`."""
        self.guard.look()
        return self.kills > 0

    def go_on(self) -> None:
        """One look of the guard, and another worker takes what that set free."""
        self.guard.look()
        self.hear()

    def hear(self) -> None:
        """Another worker takes every bell that was rung since the hop began."""
        rung = self.kit.send.rung
        while self._heard < len(rung):
            step_type, pairs = rung[self._heard]
            self._heard += 1
            self._ring(step_type, pairs)

    def statuses(self, txs: list[str]) -> list[Status]:
        return [self.kit.status(tx).status for tx in txs]

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _run(self, step_type: str, pairs: Pairs) -> None:
        # The worker of this thread: each thread of a kit is a node.
        process = self.kit.process
        worker = process.worker

        def kill() -> None:
            self.kills += 1
            process.heartbeat.retire(worker.node)

        free = partial(self.kit.connections.recovery.take_over.from_node, worker.node)
        orphans = OrphanedClaims(self.kit.connections.live, worker.hop, worker.node, free)
        self.guard = Guard(self.kit.settings, worker.hop, orphans, kill=kill)
        self._has_guard.set()
        self._ring(step_type, pairs)

    def _ring(self, step_type: str, pairs: Pairs) -> None:
        self.kit.celery.tasks[TASK_PREFIX + step_type].apply_async(args=(pairs,))
