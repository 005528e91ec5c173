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
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from redis.exceptions import RedisError

from datp_tasks.bells.costs import CostBook
from datp_tasks.live.doorbells import (
    CALL_PAIRS_MAX,
    WAITING_MAX,
    Doorbells,
    Line,
    Message,
    Pair,
    Rung,
    Waits,
)
from datp_tasks.live.event_counts import REQUEUED, EventCounts
from datp_tasks.live.live_types import PRIORITIES, Bell
from datp_tasks.live.scripts import Reply, ScriptCall

log = logging.getLogger("datp.bells")

#: How long the finding of a bell counts. A worker answers once for each hop.
FOUND_S = 1.0
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


class Post(Protocol):
    """Makes the same message, for our own connection to put into its queue."""

    @property
    def is_usable(self) -> bool: ...

    def message(
        self,
        step_type: str,
        pairs: Sequence[Pair],
        *,
        group: str,
        priority: str,
        answers: str = "",
    ) -> Message: ...


class Ringer:
    def __init__(
        self,
        send: Send,
        costs: CostBook,
        doorbells: Doorbells | None = None,
        post: Post | None = None,
        counts: EventCounts | None = None,
    ) -> None:
        self._send = send
        self._counts = counts
        self._post = post
        self._costs = costs
        #: None: every bell gets a message, as tests want it.
        self._doorbells = doorbells
        self._pending: deque[Bell] = deque()
        self._sending = threading.Lock()
        #: By the clock of this process: it only decides how many are accepted together.
        self._busy_until_s = 0.0
        #: Counted for the benchmark and for tests.
        self.messages = 0

    def ring(self, bells: Iterable[Bell | None], *, requeued: bool = True) -> None:
        """`requeued`: they were just queued once more, which counts as an event."""
        due = [bell for bell in bells if bell is not None]
        if requeued and self._counts is not None:
            for bell in due:
                pipeline = bell.place.rpartition("/")[0]
                self._counts.add(REQUEUED, bell.group, pipeline, bell.owner)
        self._pending.extend(due)
        while self._pending and self._sending.acquire(blocking=False):
            try:
                self._send_pending()
            finally:
                self._sending.release()

    def ring_next(
        self, line: str, vectors: Sequence[Sequence[Pair]], *, later: bool = False
    ) -> None:
        """What waits in a line and does not fit into the vector of who answered it.

        `later`: it lets what others have pass.
        """
        of = Line.parsed(line)
        try:
            where = of._replace(priority=of.later_priority) if later else of
            self._send_vectors(where, vectors, line)
        except Exception as error:
            count = sum(map(len, vectors))
            log.warning("up to %d bells could not be rung now: %s", count, error)

    def ring_along(
        self, bells: Sequence[Bell]
    ) -> tuple[ScriptCall, Callable[[Reply], None]] | None:
        """A call that rings for these in a round trip of the caller's, and what to do with its
        reply; None if they need more than one message, or Celery must send it."""
        if self._doorbells is None or not self._posts or len(list(_grouped(bells))) != 1:
            return None
        line, due = _line_of(bells[0]), list(map(_waits, bells))
        size = self._size(line)
        if bells[0].alone or len(due) >= size or not self._costs.is_known(line.place):
            return None
        message = self._message(line, due, line.name)
        order = self._doorbells.ringing(line.name, due, size, message)
        return order, lambda reply: self._rung_along(line, Doorbells.rung(reply))

    def _rung_along(self, line: Line, rung: Rung) -> None:
        self._busy_until_s = 0.0
        self._note(rung)
        if rung == "SENT":
            self.messages += 1
        elif rung != "SEND":
            try:
                self._ring_excess(line, rung)
            except Exception as error:
                # Their transactions are accepted: they are rung for later, and no error is told.
                log.warning("%d bells could not be rung now: %s", len(rung), error)

    @property
    def found_busy(self) -> bool:
        """Whether bells that rang last, a moment ago, found a message that no worker had taken yet:
        then workers have something to do, and what is rung for a little later starts no later.

        A guess, for all groups together: the message may be lost, or be so old that it counts as
        lost while its worker has a long queue before it.
        """
        return time.monotonic() < self._busy_until_s

    def _note(self, rung: Rung) -> None:
        if rung not in ("SEND", "SENT"):
            self._busy_until_s = time.monotonic() + FOUND_S

    def waiting(self, group: str) -> int:
        """How many wait for a message of their own to the node group."""
        return 0 if self._doorbells is None else self._doorbells.waiting(group)

    def _send_pending(self) -> None:
        self._busy_until_s = 0.0
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
        line, due = _line_of(first), list(map(_waits, bells))
        if first.alone or self._doorbells is None:
            self._send_all(line, due, 1 if first.alone else self._size(line))
            return
        self._ring_excess(line, self._ring_shared(line, due))

    def _ring_excess(self, line: Line, due: Iterable[Waits]) -> None:
        """Ring for what found no room in the line that all share."""
        for owner, excess in _owned(due).items():
            self._ring_own(line._replace(owner=owner or NO_OWNER), excess)

    def _ring_shared(self, line: Line, due: list[Waits]) -> list[Waits]:
        """Ring for what is less than a vector of its owner; the rest.

        Of a place that is not known yet, one is tried first: how many of the others go together
        is known by then.
        """
        size, is_known = self._size(line), self._costs.is_known(line.place)
        many = {owner for owner, own in _owned(due).items() if is_known and len(own) >= size}
        excess = [each for each in due if each.owner in many]
        small = [each for each in due if each.owner not in many]
        if is_known:
            full = len(small) - len(small) % size
            self._send_all(line, small[:full], size)
            small = small[full:]
        return excess + self._ring_all(line, small, size, size if is_known else WAITING_MAX)

    def _ring_own(self, line: Line, due: list[Waits]) -> None:
        """Ring for what an owner has in excess, in a line of its own.

        Its first message is as urgent as any. Those that follow are sent as workers answer.
        """
        size = self._size(line)
        refused = self._ring_all(line, due, size, WAITING_MAX)
        # What the line does not take is sent as it is, as far as it makes vectors.
        later = line._replace(priority=line.later_priority, owner="")
        self._send_all(later, refused[: len(refused) - len(refused) % size], size)

    def _ring_all(self, line: Line, due: list[Waits], size: int, owner_max: int) -> list[Waits]:
        """Each goes with a message that is on its way, or gets one; those without room."""
        left: list[Waits] = []
        is_first = True
        while due:
            together = due[:CALL_PAIRS_MAX]
            message = self._message(line, due[:size], line.name) if self._posts else None
            rung = self._ring(line, together, owner_max, message)
            if is_first:
                # The next ones find the message of this one.
                self._note(rung)
                is_first = False
            if rung == "SEND":
                self._send_vectors(line, [_pairs(due[:size])], line.name)
                due = due[size:]
            elif rung == "SENT":
                self.messages += 1
                due = due[size:]
            else:
                left += rung
                due = due[len(together) :]
        return left

    def _ring(self, line: Line, due: list[Waits], owner_max: int, message: Message | None) -> Rung:
        assert self._doorbells is not None
        try:
            return self._doorbells.ring(line.name, due, owner_max=owner_max, message=message)
        except RedisError as error:
            log.debug("the doorbell of %s is not known: %s", line.name, error)
            return "SEND"

    def _send_all(self, line: Line, due: list[Waits], size: int) -> None:
        self._send_vectors(
            line, [_pairs(due[start : start + size]) for start in range(0, len(due), size)]
        )

    def _send_vectors(
        self, line: Line, vectors: Sequence[Sequence[Pair]], answers: str = ""
    ) -> None:
        """A message for each of these."""
        where = {"group": line.group, "priority": line.priority, "answers": answers}
        if self._posts and self._doorbells is not None and self._post is not None:
            post = self._post
            self._doorbells.put([post.message(line.step_type, each, **where) for each in vectors])
            self.messages += len(vectors)
            return
        for pairs in vectors:
            self._send(line.step_type, list(pairs), **where)
            self.messages += 1

    @property
    def _posts(self) -> bool:
        return self._post is not None and self._post.is_usable

    def _message(self, line: Line, due: Sequence[Waits], answers: str) -> Message:
        assert self._post is not None
        where = {"group": line.group, "priority": line.priority, "answers": answers}
        return self._post.message(line.step_type, _pairs(due), **where)

    def _size(self, line: Line) -> int:
        # Asked anew each time: a place that was unknown may have been measured by now.
        return self._costs.vector_size(line.place)


def _line_of(bell: Bell) -> Line:
    return Line(bell.group, bell.priority, bell.step_type, bell.place)


def _waits(bell: Bell) -> Waits:
    return Waits(bell.tx_id, bell.sequence, bell.owner)


def _pairs(due: Iterable[Waits]) -> list[Pair]:
    return [each.pair for each in due]


def _owned(due: Iterable[Waits]) -> dict[str, list[Waits]]:
    """By owner."""
    owned: dict[str, list[Waits]] = {}
    for each in due:
        owned.setdefault(each.owner, []).append(each)
    return owned


def _grouped(bells: Iterable[Bell]) -> Iterator[list[Bell]]:
    """Bells that may share a message; within a group those of a shard lie together.

    A script call moves transactions of one shard: a vector from few shards needs few calls.
    """
    groups: dict[tuple[int, str, str, str, bool], list[Bell]] = {}
    for bell in bells:
        kind = PRIORITIES[bell.priority], bell.group, bell.step_type, bell.place, bell.alone
        groups.setdefault(kind, []).append(bell)
    for kind in sorted(groups):
        yield sorted(groups[kind], key=lambda bell: bell.tx_id[1:3])
