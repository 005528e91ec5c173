"""Ringing: from due transactions to Celery messages.

Ringing never waits for a vector to fill: the first caller sends at once, and what other threads
bring meanwhile goes out together right after. What does not fill a vector shares the message that
is on its way to the same place, if there is one; what an owner has beyond that waits in a line of
its own (live/doorbells.py). A bell that cannot be sent is not an error: the transaction is in
`queuedZ`, and the reconciler rings again.
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
from datp_tasks.live.doorbells import (
    CALL_PAIRS_MAX,
    WAITING_MAX,
    Doorbells,
    Line,
    Pair,
    Waits,
)
from datp_tasks.live.live_types import PRIORITIES, Bell

log = logging.getLogger("datp.bells")

#: In the name of a line, where an owner is not known: a transaction of an earlier release.
NO_OWNER = "?"


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

    def ring_next(self, line: str, vectors: Sequence[Sequence[Pair]]) -> None:
        """What waits in a line and does not fit into the vector of who answered it."""
        of = Line.parsed(line)
        where = {"group": of.group, "priority": of.next_priority, "answers": line}
        for pairs in vectors:
            try:
                self._send(of.step_type, list(pairs), **where)
                self.messages += 1
            except Exception as error:
                log.warning("%d bells could not be rung now: %s", len(pairs), error)

    def waiting(self, group: str) -> int:
        """How many wait for a message of their own to the node group."""
        return 0 if self._doorbells is None else self._doorbells.waiting(group)

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
        line = Line(first.group, first.priority, first.step_type, first.place)
        due = [Waits(bell.tx_id, bell.sequence, bell.owner) for bell in bells]
        if first.alone or self._doorbells is None:
            self._send_all(line, due, 1 if first.alone else self._size(line))
            return
        for owner, excess in self._ring_shared(line, due).items():
            self._ring_own(line._replace(owner=owner or NO_OWNER), excess)

    def _ring_shared(self, line: Line, due: list[Waits]) -> dict[str, list[Waits]]:
        """Ring for what is less than a vector of its owner; the rest, by owner.

        Of a place that is not known yet, one is tried first: how many of the others go together
        is known by then.
        """
        size, is_known = self._size(line), self._costs.is_known(line.place)
        owned: dict[str, list[Waits]] = {}
        for each in due:
            owned.setdefault(each.owner, []).append(each)
        excess = {owner: own for owner, own in owned.items() if is_known and len(own) >= size}
        small = [each for each in due if each.owner not in excess]
        if is_known:
            full = len(small) - len(small) % size
            self._send_all(line, small[:full], size)
            small = small[full:]
        for each in self._ring_all(line, small, size, size if is_known else WAITING_MAX):
            excess.setdefault(each.owner, []).append(each)
        return excess

    def _ring_own(self, line: Line, due: list[Waits]) -> None:
        """Ring for what an owner has in excess, in a line of its own.

        Its first message is as urgent as any. Those that follow are sent as workers answer.
        """
        size = self._size(line)
        refused = self._ring_all(line, due, size, WAITING_MAX)
        # What the line does not take is sent as it is, as far as it makes vectors.
        later = line._replace(priority=line.next_priority, owner="")
        self._send_all(later, refused[: len(refused) - len(refused) % size], size)

    def _ring_all(self, line: Line, due: list[Waits], size: int, owner_max: int) -> list[Waits]:
        """Each goes with a message that is on its way, or gets one; those without room."""
        left: list[Waits] = []
        while due:
            together = due[:CALL_PAIRS_MAX]
            refused = self._ring(line, together, owner_max)
            if refused is None:
                self._send_one(line, due[:size], line.name)
                due = due[size:]
            else:
                left += refused
                due = due[len(together) :]
        return left

    def _ring(self, line: Line, due: list[Waits], owner_max: int) -> list[Waits] | None:
        assert self._doorbells is not None
        try:
            return self._doorbells.ring(line.name, due, owner_max=owner_max)
        except RedisError as error:
            log.debug("the doorbell of %s is not known: %s", line.name, error)
            return None

    def _send_all(self, line: Line, due: list[Waits], size: int) -> None:
        while due:
            self._send_one(line, due[:size])
            due = due[size:]

    def _send_one(self, line: Line, due: list[Waits], answers: str = "") -> None:
        where = {"group": line.group, "priority": line.priority}
        options = {"answers": answers} if answers else {}
        self._send(line.step_type, [each.pair for each in due], **where, **options)
        self.messages += 1

    def _size(self, line: Line) -> int:
        # Asked anew each time: a place that was unknown may have been measured by now.
        return self._costs.vector_size(line.place)


def _grouped(bells: list[Bell]) -> Iterator[list[Bell]]:
    """Bells that may share a message; within a group those of a shard lie together.

    A script call moves transactions of one shard: a vector from few shards needs few calls.
    """

    def kind(bell: Bell) -> tuple[int, str, str, str, bool]:
        return PRIORITIES[bell.priority], bell.group, bell.step_type, bell.place, bell.alone

    for _, group in groupby(sorted(bells, key=kind), key=kind):
        yield sorted(group, key=lambda bell: bell.tx_id[1:3])
