"""Let transactions expire whose time is over.

Moves:    nothing begun -> expired, at once. Otherwise it is marked in SQL, then asked to turn
          around: sleeping -> queued, and a worker rolls it back and ends it.
Knows:    what the log of state changes says, up to the oldest writer that has not committed. Not
          whether a worker will answer: one that does nothing for `timeout_takeover_s` after it
          was asked loses its fence (running -> queued), as if its node were gone.
Bound:    `timeout_window_max` rows of the log and `timeout_batch_max` due ones at a time,
          ROUNDS_MAX times a run.
Overlap:  harmless: one reads the log, each takes other due ones, and the finish in SQL decides.
Crash:    a due one stays in `tx_timeout` until the log says that it is final; another run takes
          it again after `timeout_retry_s`.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from datp_tasks.bells.ringer import Ringer
from datp_tasks.failpoints import reach
from datp_tasks.live.store import LiveStore
from datp_tasks.live.types import Bell, Claimed, Refused
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.timeouts import BEHIND, Due, Timeouts
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.end_unstarted import end_unstarted
from datp_tasks.transactions.restore import Restorer
from datp_tasks.transactions.take_over import TakeOver

log = logging.getLogger("datp.timeouts")

ROUNDS_MAX = 10

Answers = Sequence[Claimed | Bell | Refused]


@dataclass(frozen=True, slots=True)
class Result:
    #: Rows of the log that were read.
    read: int
    #: Ended at once, asked to turn around, taken from a worker that does not answer.
    expired: int
    asked: int
    taken: int


@dataclass(frozen=True, slots=True)
class Tables:
    """What the handler keeps in SQL beside the record."""

    timeouts: Timeouts
    alerts: Alerts


@dataclass(frozen=True, slots=True)
class Limits:
    #: At a time: rows of the log, and due ones.
    window_max: int
    batch_max: int
    #: When another run takes a due one again, and when one is looked at again that is not ready.
    retry_s: float
    look_again_s: float
    #: A worker that was asked and has not moved for so long loses its claim.
    patience_s: float
    lag_alert_s: float


def run_once(
    live: LiveStore,
    record: Record,
    tables: Tables,
    restorer: Restorer,
    ringer: Ringer,
    *,
    limits: Limits,
) -> Result:
    timeouts = tables.timeouts
    handler = Handler(live, record, timeouts, restorer, ringer, limits)
    read = 0
    peek = timeouts.peek()
    for _ in range(ROUNDS_MAX):
        if not (peek.is_new or peek.is_due):
            break
        window, due = timeouts.run_pass(
            rows_max=limits.window_max,
            batch_max=limits.batch_max,
            again_s=limits.retry_s,
        )
        reach("timeouts.after_pass")
        read += window.rows
        handler.expire(due)
        peek = timeouts.peek()
    handler.leave()
    if (peek.lag_s > limits.lag_alert_s) != peek.is_alarmed:
        _tell_of_lag(tables.alerts, peek.lag_s, is_over=peek.is_alarmed)
    return Result(read=read, expired=handler.expired, asked=handler.asked, taken=handler.taken)


class Handler:
    """One run. It is a node of its own, so that the reaper notices should it die half-way."""

    def __init__(
        self,
        live: LiveStore,
        record: Record,
        timeouts: Timeouts,
        restorer: Restorer,
        ringer: Ringer,
        limits: Limits,
    ) -> None:
        self._live = live
        self._record = record
        self._timeouts = timeouts
        self._restorer = restorer
        self._ringer = ringer
        self._limits = limits
        self._take_over = TakeOver(live, record, ringer)
        self._node = f"timeouts-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._joined = False
        self.expired = 0
        self.asked = 0
        self.taken = 0

    def expire(self, due: Sequence[Due]) -> None:
        """Each by the finish in SQL that every other ending goes through."""
        if not due:
            return
        self._live.beat(self._node)
        self._joined = True
        recalls = {each.tx_id: _recall(each) for each in due}
        texts = [(tx_id, recall.to_text()) for tx_id, recall in recalls.items()]
        answers = self._seize(texts)
        reach("timeouts.after_seize")
        self._end(answers, recalls)
        begun = _refused(answers, "BEGUN")
        self._turn_around([each for each in due if each.tx_id in begun])
        # Final in Redis means final in SQL; one that is not in Redis may be either.
        self._follow_sql(sorted(_refused(answers, "FINAL", "UNKNOWN")))

    def _seize(self, texts: Sequence[tuple[str, str]]) -> Answers:
        """Those that sleep and have left Redis are brought back first."""
        answers = self._live.cancel_many(texts, self._node, only_seize=True)
        away = _refused(answers, "UNKNOWN")
        if not away:
            return answers
        self._restorer.restore(sorted(away))
        again = [each for each in texts if each[0] in away]
        known = [each for each in answers if each.tx_id not in away]
        return [*known, *self._live.cancel_many(again, self._node, only_seize=True)]

    def leave(self) -> None:
        """What this node could not end is left to the reaper, who misses the node soon."""
        if self._joined and not self._live.running_on(self._node):
            self._live.forget_node(self._node)

    def _end(self, answers: Answers, recalls: dict[str, StopRequest]) -> None:
        """Nothing had begun: they end here and now."""
        seized = [(each, recalls[each.tx_id]) for each in answers if isinstance(each, Claimed)]
        if not seized:
            return
        won = end_unstarted(self._record, self._live, seized, self._node)
        self.expired += len(won)
        self._follow_sql([each.tx_id for each, _ in seized if each.tx_id not in won])

    def _turn_around(self, begun: Sequence[Due]) -> None:
        """SQL first: from its commit on they cannot succeed, whatever becomes of this process."""
        if not begun:
            return
        marked = self._record.mark_expiring([each.tx_id for each in begun])
        reach("timeouts.after_mark")
        recalls = {each.tx_id: _recall(each) for each in begun if each.tx_id in marked}
        texts = [(tx_id, recall.to_text()) for tx_id, recall in recalls.items()]
        answers = self._live.cancel_many(texts, self._node)
        reach("timeouts.after_ask")
        bells = [each for each in answers if isinstance(each, Bell)]
        self._ringer.ring(bells)
        self._end(answers, recalls)
        waiting = _refused(answers, "ASKED")
        self.asked += len(bells) + len(waiting)
        self._wait_for_workers([each for each in begun if each.tx_id in waiting])
        self._follow_sql([each.tx_id for each in begun if each.tx_id not in marked])

    def _wait_for_workers(self, waiting: Sequence[Due]) -> None:
        """Remember how far each worker is; take over from one that has not moved since."""
        first: list[tuple[str, str]] = []
        stuck: dict[str, list[tuple[str, int]]] = {}
        names = ("status", "node", "fence", "version")
        found = self._live.named_many([each.tx_id for each in waiting], names)
        for due, fields in zip(waiting, found, strict=True):
            if fields.get("status") != Status.RUNNING:
                continue
            seen = f"{fields['fence']}:{fields['version']}"
            if due.asked is None:
                first.append((due.tx_id, seen))
            elif seen == due.asked and (due.asked_ago_s or 0) >= self._limits.patience_s:
                stuck.setdefault(fields["node"], []).append((due.tx_id, int(fields["fence"])))
        if first:
            self._timeouts.note_asked(first)
        for node, claims in stuck.items():
            taken = self._take_over.from_worker(node, claims)
            self.taken += taken
            log.warning("node %s does not stop %d transactions that expired", node, taken)

    def _follow_sql(self, tx_ids: Sequence[str]) -> None:
        """What SQL has ended is forgotten here and ends in Redis. The rest is looked at again."""
        if not tx_ids:
            return
        final = [each for each in self._record.summaries(tx_ids) if each.is_final]
        self._live.follow_sql([(each.tx_id, each.status) for each in final])
        self._timeouts.forget([each.tx_id for each in final])
        ended = {each.tx_id for each in final}
        # Its row is locked by a step, or Redis does not have it yet.
        self._timeouts.look_again(
            [tx_id for tx_id in tx_ids if tx_id not in ended],
            self._limits.look_again_s,
        )


def _recall(due: Due) -> StopRequest:
    return StopRequest(Status.EXPIRED, f"it was not over by {due.expires_at.isoformat()}")


def _refused(answers: Answers, *words: str) -> set[str]:
    return {each.tx_id for each in answers if isinstance(each, Refused) and each.word in words}


def _tell_of_lag(alerts: Alerts, lag_s: float, *, is_over: bool) -> None:
    if is_over:
        alerts.clear_alert(BEHIND, "tx_state_change")
    else:
        alerts.raise_alert(
            BEHIND,
            "tx_state_change",
            f"the timeout handler is {lag_s:.0f} s behind: a writer that does not commit holds it "
            "up, or it cannot keep pace",
        )
