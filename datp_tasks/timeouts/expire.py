"""Letting transactions expire whose time is over.

What has not begun ends at once. Otherwise it is marked in SQL, then told to stop; a worker rolls
it back. A worker that does nothing after it was asked loses its fence, as if its node were gone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from datp_tasks.bells.ringer import Ringer
from datp_tasks.failpoints import reach
from datp_tasks.live.live_types import Bell, Claimed, Refused
from datp_tasks.live.store import LiveStore
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.process_name import unique_name
from datp_tasks.record.timeouts import Due, Timeouts
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.follow_record import follow_record
from datp_tasks.transactions.locate import ask_many
from datp_tasks.transactions.restore import Restorer
from datp_tasks.transactions.stop import StopAnswer, end_unstarted
from datp_tasks.transactions.take_over import TakeOver

log = logging.getLogger("datp.timeouts")

Answers = Sequence[StopAnswer]


@dataclass(frozen=True, slots=True)
class Patience:
    #: When one is looked at again that is not ready.
    look_again_s: float
    #: A worker that was asked and has not moved for so long loses its claim.
    takeover_s: float


class Expirer:
    """One run. It is a node of its own, so that the reaper notices should it die half-way."""

    def __init__(
        self,
        live: LiveStore,
        record: Record,
        timeouts: Timeouts,
        restorer: Restorer,
        ringer: Ringer,
        patience: Patience,
    ) -> None:
        self._patience = patience
        self._live = live
        self._record = record
        self._restorer = restorer
        self._ringer = ringer
        self._timeouts = timeouts
        self._take_over = TakeOver(live, record, ringer)
        self._node = f"timeouts-{unique_name()}"
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
        requests = {each.tx_id: _stop_request(each) for each in due}
        answers = self._seize(requests)
        reach("timeouts.after_seize")
        self._end(answers, requests)
        begun = _refused(answers, "BEGUN")
        self._stop_begun([each for each in due if each.tx_id in begun])
        # Final in Redis means final in SQL; one that is not in Redis may be either.
        self._follow_record(sorted(_refused(answers, "FINAL", "UNKNOWN")))

    def leave(self) -> None:
        """What this node could not end is left to the reaper, who misses the node soon."""
        if self._joined and not self._live.running_on(self._node):
            self._live.forget_node(self._node)

    def _seize(self, requests: dict[str, StopRequest]) -> Answers:
        """Those in which nothing has begun belong to this node from now on."""

        def seize(tx_ids: Sequence[str]) -> Answers:
            wanted = [(tx_id, requests[tx_id]) for tx_id in tx_ids]
            return self._live.stop_many(wanted, self._node, only_seize=True)

        return ask_many(self._restorer, list(requests), seize).answers

    def _end(self, answers: Answers, requests: dict[str, StopRequest]) -> None:
        """Nothing had begun: they end here and now."""
        won = end_unstarted(self._record, self._live, answers, requests, self._node)
        self.expired += len(won)
        seized = [each.tx_id for each in answers if isinstance(each, Claimed)]
        self._follow_record([tx_id for tx_id in seized if tx_id not in won])

    def _stop_begun(self, begun: Sequence[Due]) -> None:
        """SQL first: from its commit on they cannot succeed, whatever becomes of this process."""
        if not begun:
            return
        marked = self._record.mark_expiring([each.tx_id for each in begun])
        reach("timeouts.after_mark")
        requests = {each.tx_id: _stop_request(each) for each in begun if each.tx_id in marked}
        answers = self._live.stop_many(list(requests.items()), self._node)
        reach("timeouts.after_ask")
        bells = [each for each in answers if isinstance(each, Bell)]
        self._ringer.ring(bells)
        self._end(answers, requests)
        waiting = _refused(answers, "ASKED")
        self.asked += len(bells) + len(waiting)
        self._wait_for_workers([each for each in begun if each.tx_id in waiting])
        self._follow_record([each.tx_id for each in begun if each.tx_id not in marked])

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
            elif seen == due.asked and (due.asked_ago_s or 0) >= self._patience.takeover_s:
                stuck.setdefault(fields["node"], []).append((due.tx_id, int(fields["fence"])))
        if first:
            self._timeouts.note_asked(first)
        for node, claims in stuck.items():
            taken = self._take_over.from_worker(node, claims)
            self.taken += taken
            log.warning("node %s does not stop %d transactions that expired", node, taken)

    def _follow_record(self, tx_ids: Sequence[str]) -> None:
        """What SQL has ended is not due any more. The rest is looked at again."""
        if not tx_ids:
            return
        ended = follow_record(self._record, self._live, tx_ids)
        self._timeouts.forget(sorted(ended))
        self._timeouts.forget_past_return(tx_ids)
        # Its row is locked by a step, or Redis does not have it yet.
        still_open = [tx_id for tx_id in tx_ids if tx_id not in ended]
        self._timeouts.look_again(still_open, self._patience.look_again_s)


def _stop_request(due: Due) -> StopRequest:
    return StopRequest.over(due.expires_at)


def _refused(answers: Answers, *words: str) -> set[str]:
    return {each.tx_id for each in answers if isinstance(each, Refused) and each.word in words}
