"""Ringing: from due transactions to Celery messages.

Ringing never waits for a vector to fill: the first caller sends at once, and what other threads
bring meanwhile goes out together right after. What does not fill a vector shares the message that
is on its way to the same place, if there is one (live/doorbells.py). A bell that cannot be sent
is not an error: the transaction is in `queuedZ`, and the reconciler rings again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

from redis.exceptions import RedisError

from datp_tasks.bells.costs import CostBook
from datp_tasks.live.doorbells import Doorbells, Pair
from datp_tasks.live.types import PRIORITIES, Bell

log = logging.getLogger("datp.bells")


class Send(Protocol):
    """Sends one message: the step type's task, for these (id, sequence) pairs.

    `answers`: the place of the doorbell that the worker answers with it.
    """

    def __call__(
        self,
        step_type: str,
        pairs: list[Pair],
        *,
        group: str,
        priority: str,
        answers: str = "",
    ) -> None: ...


class Ringer:
    def __init__(self, send: Send, costs: CostBook, doorbells: Doorbells | None = None) -> None:
        self._send = send
        self._costs = costs
        #: None: every bell gets a message, as tests want it.
        self._doorbells = doorbells
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

    def ring_next(self, place: str, pairs: Sequence[Pair]) -> None:
        """What waits at a doorbell and does not fit into the vector of who answered it."""
        group, priority, step_type, _ = place.split("|", 3)
        try:
            self._send(step_type, list(pairs), group=group, priority=priority, answers=place)
            self.messages += 1
        except Exception as error:
            log.warning("%d bells could not be rung now: %s", len(pairs), error)

    def _send_pending(self) -> None:
        bells = []
        while self._pending:
            bells.append(self._pending.popleft())
        for group in _grouped(bells):
            try:
                self._send_group(group)
            except Exception as error:
                # The broker is unavailable; what is queued stays queued and is rung again later.
                log.warning("%d bells could not be rung now: %s", len(group), error)

    def _send_group(self, bells: list[Bell]) -> None:
        first = bells[0]
        pairs = [(bell.tx_id, bell.sequence) for bell in bells]
        while pairs:
            # Asked anew each time: a place that was unknown may have been measured by now.
            size = 1 if first.alone else self._costs.vector_size(first.place)
            place = "" if first.alone else self._shared_place(first, len(pairs), size)
            if place and not self._must_send(place, pairs):
                return
            answers = {"answers": place} if place else {}
            where = {"group": first.group, "priority": first.priority}
            self._send(first.step_type, pairs[:size], **where, **answers)
            self.messages += 1
            pairs = pairs[size:]

    def _shared_place(self, bell: Bell, count: int, size: int) -> str:
        """Where these wait for a message that is on its way; empty if they need their own.

        Full vectors do, and what is known to run alone. Of a place that is not known yet, one
        is tried first: how many of the others go together is known by then.
        """
        if self._doorbells is None:
            return ""
        if count < size or not self._costs.is_known(bell.place):
            return f"{bell.group}|{bell.priority}|{bell.step_type}|{bell.place}"
        return ""

    def _must_send(self, place: str, pairs: list[Pair]) -> bool:
        assert self._doorbells is not None
        try:
            return self._doorbells.ring(place, pairs)
        except RedisError as error:
            log.debug("the doorbell of %s is not known: %s", place, error)
            return True


def _grouped(bells: list[Bell]) -> Iterator[list[Bell]]:
    """Bells that may share a message; within a group those of a shard lie together.

    A script call moves transactions of one shard: a vector from few shards needs few calls.
    """

    def kind(bell: Bell) -> tuple[int, str, str, str, bool]:
        return PRIORITIES[bell.priority], bell.group, bell.step_type, bell.place, bell.alone

    for _, group in groupby(sorted(bells, key=kind), key=kind):
        yield sorted(group, key=lambda bell: bell.tx_id[1:3])
