"""Ringing: from due transactions to Celery messages.

Nobody waits for a vector to fill: the first caller sends at once, and what other threads bring
meanwhile goes out together right after. A bell that cannot be sent is not an error: the
transaction is in `queuedZ`, and the reconciler rings again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Protocol

from datp_tasks.bells.costs import CostBook
from datp_tasks.live.words import PRIORITIES, Bell

log = logging.getLogger("datp.bells")


class Send(Protocol):
    """Sends one message: the step type's task, for these (id, sequence) pairs."""

    def __call__(
        self, step_type: str, pairs: list[tuple[str, int]], *, group: str, priority: str
    ) -> None: ...


class Ringer:
    def __init__(self, send: Send, costs: CostBook) -> None:
        self._send = send
        self._costs = costs
        self._pending: deque[Bell] = deque()
        self._sending = threading.Lock()
        #: Counted for the benchmark and for tests.
        self.messages = 0

    def ring(self, bells: Iterable[Bell | None]) -> None:
        self._pending.extend(bell for bell in bells if bell is not None)
        while self._pending and self._sending.acquire(blocking=False):
            try:
                self._send_pending()
            finally:
                self._sending.release()

    def _send_pending(self) -> None:
        bells = []
        while self._pending:
            bells.append(self._pending.popleft())
        for group in _grouped(bells):
            try:
                self._send_group(group)
            except Exception as error:
                # The broker is away; what is queued stays queued and is rung again later.
                log.warning("%d bells could not be rung now: %s", len(group), error)

    def _send_group(self, bells: list[Bell]) -> None:
        first = bells[0]
        start = 0
        while start < len(bells):
            # Asked anew each time: a place that was unknown may have been measured by now.
            end = start + (1 if first.alone else self._costs.vector_size(first.place))
            pairs = [(bell.tx_id, bell.sequence) for bell in bells[start:end]]
            self._send(first.step_type, pairs, group=first.group, priority=first.priority)
            self.messages += 1
            start = end


def _grouped(bells: list[Bell]) -> Iterator[list[Bell]]:
    """Bells that may share a message; within a group those of a shard lie together.

    A script call moves transactions of one shard: a vector from few shards needs few calls.
    """

    def kind(bell: Bell) -> tuple[int, str, str, str, bool]:
        return PRIORITIES[bell.priority], bell.group, bell.step_type, bell.place, bell.alone

    for _, group in groupby(sorted(bells, key=kind), key=kind):
        yield sorted(group, key=lambda bell: bell.tx_id[1:3])
