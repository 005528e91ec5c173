"""Submitting: begin (committed), one POST, finish (compare-and-set), then what the ledger says.

A run works on the services of one message at the same time: their attempts begin in one commit,
their POSTs are on their way together, and whatever has ended is recorded together. It follows a
batch for a moment after it was accepted, and goes on with the next one in line, so a service with
a quick ledger does not wait for beat. Everything it does is allowed by the claim each time anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from datp_tasks.ledger.attempts import UNAVAILABLE, Attempts
from datp_tasks.ledger.batch_types import VECTOR_MAX, Asked, Begun, RingAll, Work
from datp_tasks.ledger.poller import Asking
from datp_tasks.model.ledger_batch import BatchState, Verdict
from datp_tasks.outbound.messages import Exchange

log = logging.getLogger("datp.ledger")

#: A result that is there by then saves a message and a poll.
FOLLOW_S = 0.25
#: How long a worker stays with one service before others get their turn.
RUN_S = 2.0
#: How soon after its acceptance a batch is asked for, and how much later each time.
FOLLOW_FIRST_S = 0.005
FOLLOW_FACTOR = 2.0
FOLLOW_PAUSE_S_MAX = 0.5
#: When one POST has ended, others that are about to end are recorded with it.
LINGER_S = 0.01
LINGER_S_MAX = 0.1


@dataclass(slots=True)
class SubmitResult:
    begun: int = 0
    accepted: int = 0
    final: int = 0
    #: Ends that did not count, because the batch had gone on without this sender.
    refused: int = 0


@dataclass(slots=True)
class Followed:
    asked: Asked
    epoch: int
    due_s: float
    pause_s: float
    give_up_s: float


class Submitter:
    def __init__(
        self,
        *,
        attempts: Attempts,
        asking: Asking,
        ring: RingAll,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.attempts = attempts
        self.asking = asking
        self.ring = ring
        self.clock = clock

    def run(self, works: Sequence[Work]) -> SubmitResult:
        """Everything that one message leads to."""
        return _Run(self, works).until_done()


class _Run:
    """One run: what is on its way, what is followed, and what may begin next."""

    def __init__(self, submitter: Submitter, works: Sequence[Work]) -> None:
        self._attempts = submitter.attempts
        self._asking = submitter.asking
        self._ring = submitter.ring
        self._clock = submitter.clock
        self._ready = list(works)
        self._posts: dict[Future[Exchange], Begun] = {}
        self._followed: dict[tuple[str, str], Followed] = {}
        self._stops_at_s = self._clock() + RUN_S
        self._result = SubmitResult()

    def until_done(self) -> SubmitResult:
        first = True
        while self._ready or self._posts or self._followed:
            if self._ready and (first or self._clock() < self._stops_at_s):
                self._begin()
            elif self._ready:
                # Others wait for this process; these go on with the next message.
                self._ring(self._ready)
                self._ready = []
            first = False
            self._collect_posts()
            self._ask_followed()
        return self._result

    def _begin(self) -> None:
        room = VECTOR_MAX
        works, self._ready = self._ready[:room], self._ready[room:]
        try:
            posts = self._attempts.begin(works)
        except UNAVAILABLE as error:
            # Perhaps they are begun and perhaps not; nothing was sent, and a tick finds out.
            log.warning("%d attempts are not begun: %s", len(works), error)
            return
        self._posts |= posts
        self._result.begun += len(posts)

    def _collect_posts(self) -> None:
        if not self._posts:
            return
        # Followed batches must not wait for a slow neighbour, nor recorded ends for a slow ledger.
        pause_s = self._until_next_question_s()
        done = wait(self._posts, timeout=pause_s, return_when=FIRST_COMPLETED).done
        if not done:
            return
        linger_until_s = self._clock() + LINGER_S_MAX
        while len(done) < len(self._posts) and self._clock() < linger_until_s:
            others = self._posts.keys() - done
            more = wait(others, timeout=LINGER_S, return_when=FIRST_COMPLETED).done
            if not more:
                break
            done |= more
        ends = [(post, self._posts.pop(post)) for post in done]
        now_s = self._clock()
        counted = self._attempts.finish(ends)
        accepted = [each.begun for each in counted if each.verdict is Verdict.ACCEPTED]
        self._result.refused += len(ends) - len(counted)
        self._result.accepted += len(accepted)
        for begun in accepted if FOLLOW_S else ():
            self._followed[begun.key] = Followed(
                asked=_pending(begun),
                epoch=begun.epoch,
                due_s=now_s + FOLLOW_FIRST_S,
                pause_s=FOLLOW_FIRST_S,
                give_up_s=now_s + FOLLOW_S,
            )

    def _until_next_question_s(self) -> float | None:
        if not self._followed:
            return None
        return max(0.0, min(each.due_s for each in self._followed.values()) - self._clock())

    def _ask_followed(self) -> None:
        if not self._followed:
            return
        if not self._posts:
            time.sleep(self._until_next_question_s() or 0)
        now_s = self._clock() + LINGER_S
        due = [each for each in self._followed.values() if each.due_s <= now_s]
        if not due:
            return
        try:
            final = self._asking.follow([each.asked for each in due])
        except UNAVAILABLE as error:
            # What is on its way must still be recorded; these are left to the poller.
            log.warning("%d batches are not followed any more: %s", len(due), error)
            self._followed.clear()
            return
        self._result.final += len(final)
        now_s = self._clock()
        for each in due:
            key = each.asked.key
            if key in final:
                # Whatever is next in line, if the claim still holds.
                self._ready.append(Work(each.asked.service_id, "", each.epoch))
                del self._followed[key]
            elif now_s >= min(each.give_up_s, self._stops_at_s):
                del self._followed[key]
            else:
                each.pause_s = min(each.pause_s * FOLLOW_FACTOR, FOLLOW_PAUSE_S_MAX)
                each.due_s = now_s + each.pause_s


def _pending(begun: Begun) -> Asked:
    return Asked(
        service_id=begun.service_id,
        batch_id=begun.batch_id,
        kind=begun.kind,
        url=begun.url,
        state=BatchState.PENDING,
        attempts=begun.attempt,
        possible=begun.possible,
        secret=begun.secret,
        resubmits=0,
        unknown_seen=0,
        grace_over=False,
        swallow_over=False,
    )
