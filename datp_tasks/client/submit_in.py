"""Submitting inside the SQL transaction of a caller: accepted if, and only if, the caller commits.

No message can be sent in that commit, so a thread of this process looks for it: one small query
for all callers together, within milliseconds at first and ever more slowly. What is committed is
placed and rung for. If this process dies before that, the reconciler does it within seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datp_tasks.client.requests import Prepared, Request, Submitted
from datp_tasks.client.submit import BATCH_MAX, RequestAcceptor
from datp_tasks.errors import DataKeyGone, PipelineError, RequestError
from datp_tasks.failpoints import reach
from datp_tasks.record.awaited_connection import awaited_connection_of
from datp_tasks.record.caller_connection import connection_of
from datp_tasks.record.caller_transaction import CallerAccepts, CallerTransaction, Joined
from datp_tasks.record.sql_errors import SQLAlchemyError

log = logging.getLogger("datp.client")

#: At some kilobytes each; what is beyond that has the reconciler find it.
PENDING_MAX = 20_000
#: Between the first looks for the commit of a caller. A look is one query of about 0.2 ms.
LOOK_S = 0.002
#: Between later looks: a caller that takes a second does not notice a tenth of one.
LOOK_S_MAX = 0.1
#: A caller that takes longer has the reconciler find its commit.
WATCH_S = 300.0
#: The next look is after this part of the time that has passed since the submit.
LOOK_PART = 0.1
STOP_S = 5.0


class CallerSubmits:
    """Accepts in the transactions of callers, and places what they commit."""

    def __init__(
        self, acceptor: RequestAcceptor, accepts: CallerAccepts, *, watches: bool = True
    ) -> None:
        self._acceptor = acceptor
        self._accepts = accepts
        self._watch = CommitWatch(self.place_committed) if watches else None
        self._lock = threading.Lock()
        #: What may have been committed, by transaction: with the number of its caller's.
        self._pending: dict[str, _Pending] = {}

    def submit_many(
        self, connection: object, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        caller = CallerTransaction(connection_of(connection))
        if len(requests) <= BATCH_MAX:
            return self._submit_many(caller, requests)
        with caller.as_a_whole():
            return self._submit_many(caller, requests)

    async def submit_many_async(
        self, connection: object, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        awaited = await awaited_connection_of(connection)
        caller = CallerTransaction(awaited)
        return await awaited.run(lambda: self._submit_many(caller, requests))

    def _submit_many(
        self, caller: CallerTransaction, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        batch_max = BATCH_MAX
        answers: list[Submitted | RequestError | PipelineError] = []
        for start in range(0, len(requests), batch_max):
            batch = requests[start : start + batch_max]
            try:
                answers += self._submit_batch(caller, batch)
            except DataKeyGone as error:
                # An owner was erased with its keys: nothing was accepted, and it gets a new one.
                self._acceptor.vault.forget(error.key_ids)
                answers += self._submit_batch(caller, batch)
        return answers

    def _submit_batch(
        self, caller: CallerTransaction, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        prepared, good = self._acceptor.prepare_many(requests)
        # Also without a request that can be accepted: a wrong connection is always told.
        joined = self._accepts.accept(caller, [each.acceptance for each in good])
        reach("submit_in.after_accept")
        self._remember(caller, good, joined)
        return self._acceptor.answers(prepared, joined.existing)

    def _remember(
        self, caller: CallerTransaction, good: Sequence[Prepared], joined: Joined
    ) -> None:
        new = [each for each, before in zip(good, joined.existing, strict=True) if before is None]
        if not new:
            return
        now_s = time.monotonic()
        with self._lock:
            room = PENDING_MAX - len(self._pending)
            for each in new[: max(room, 0)]:
                self._pending[each.acceptance.tx_id] = _Pending(each, joined.xact, now_s)
        if self._watch is not None:
            caller.before_commit(self._watch.on_commit)
            try:
                self._watch.start()
            except RuntimeError as error:
                # The machine has no thread left: the reconciler finds what the caller commits.
                log.warning("what was submitted in an SQL transaction starts later: %s", error)

    def place_committed(self) -> float | None:
        """Place what was committed by now. How long ago the newest was submitted that may still
        be committed; None if there is none."""
        with self._lock:
            pending = list(self._pending.values())
        if not pending:
            return None
        found = self._accepts.standing([(each.tx_id, each.xact) for each in pending])
        queued = {each.tx_id for each in found if each.is_queued}
        over = {each.tx_id for each in found if each.is_over}
        # The reconciler has to look after a caller that takes longer.
        too_old_s = time.monotonic() - WATCH_S
        over |= {each.tx_id for each in pending if each.since_s < too_old_s}
        with self._lock:
            # Two threads may look at once: one of them places it.
            committed = [p for p in pending if p.tx_id in queued and p.tx_id in self._pending]
            for tx_id in over | queued:
                self._pending.pop(tx_id, None)
            newest_s = max((each.since_s for each in self._pending.values()), default=None)
        reach("submit_in.after_commit")
        if committed:
            self._acceptor.place([each.prepared for each in committed])
        return None if newest_s is None else time.monotonic() - newest_s

    def close(self) -> None:
        """What was committed right before is placed; the reconciler does what cannot be."""
        if self._watch is not None:
            self._watch.close()
        try:
            self.place_committed()
        except SQLAlchemyError as error:
            log.warning("what was submitted in SQL transactions starts later: %s", error)


@dataclass(frozen=True, slots=True)
class _Pending:
    prepared: Prepared
    xact: str
    since_s: float

    @property
    def tx_id(self) -> str:
        return self.prepared.acceptance.tx_id


class CommitWatch:
    """A thread that looks for commits while there may be some, and sleeps else."""

    def __init__(self, look: Callable[[], float | None]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._news = threading.Event()
        self._closing = False
        #: A caller commits about now, so looks are frequent until then.
        self._soon_until_s = 0.0

    def start(self) -> None:
        with self._lock:
            # A thread does not survive a fork: a child begins its own.
            if (self._thread is None or not self._thread.is_alive()) and not self._closing:
                self._thread = threading.Thread(target=self._run, name="datp-commits", daemon=True)
                self._thread.start()
        self._news.set()

    def on_commit(self, *_: object) -> None:
        """A caller is about to commit, or has."""
        self._soon_until_s = time.monotonic() + LOOK_S_MAX
        self._news.set()

    def close(self) -> None:
        with self._lock:
            self._closing = True
            thread, self._thread = self._thread, None
        self._news.set()
        if thread is not None:
            thread.join(STOP_S)

    def _run(self) -> None:
        while not self._closing:
            self._news.clear()
            try:
                age_s = self._look()
                pause_s = None if age_s is None else self._pause_s(age_s)
            except SQLAlchemyError as error:
                log.warning("commits of callers are looked for later: %s", error)
                pause_s = LOOK_S_MAX
            except Exception:
                log.exception("what callers have committed is left to the reconciler")
                pause_s = LOOK_S_MAX
            if pause_s is None:
                self._news.wait()
            else:
                time.sleep(LOOK_S)
                self._news.wait(pause_s - LOOK_S)

    def _pause_s(self, age_s: float) -> float:
        if time.monotonic() < self._soon_until_s:
            return LOOK_S
        return min(max(age_s * LOOK_PART, LOOK_S), LOOK_S_MAX)
