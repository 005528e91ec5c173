"""Take transactions from a node or a worker that must not go on with them.

SQL gets a higher fence first: should the worker wake up, Redis and SQL both refuse it. Then each
transaction is queued again and rings alone, because one of them may have brought its worker down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from datp_tasks.bells.ringer import Ringer
from datp_tasks.failpoints import reach
from datp_tasks.live.live_types import Bell
from datp_tasks.live.store import LiveStore
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.follow_record import follow_summaries

#: What must be known of a transaction before it is taken.
HELD = ("status", "node", "fence", "version", "unsafe")


@dataclass(frozen=True, slots=True)
class Taken:
    #: Queued again.
    queued: int
    #: Had ended in SQL already.
    ended: int


class TakeOver:
    def __init__(self, live: LiveStore, record: Record, ringer: Ringer) -> None:
        self._live = live
        self._record = record
        self._ringer = ringer

    def from_node(self, node: str, held: Sequence[str]) -> Taken:
        """Queue again what Redis says this node runs, and no worker has in hand.

        One in the middle of a step that is not safe to run again is left until that step's time
        limit is over.
        """
        now_ms = self._live.server_now_ms()
        found = dict(zip(held, self._live.named_many(held, HELD), strict=True))
        held = [tx for tx in held if not _is_mid_way(found[tx], now_ms)]
        fences = {tx: int(found[tx]["fence"]) for tx in held if found[tx].get("node") == node}
        raised = self._raise_fences(node, fences)
        reach("reaper.after_fence")
        queued = self._queue_again(node, [(tx, fences[tx], raised[tx]) for tx in raised])
        ended = self._follow_sql(node, [tx for tx in held if tx not in raised], fences)
        return Taken(queued=queued, ended=ended)

    def from_worker(self, node: str, claims: Sequence[tuple[str, int]]) -> int:
        """Take these claims (transaction and fence) from a node that beats; how many it lost."""
        raised = self._raise_fences(node, dict(claims))
        reach("timeouts.after_fence")
        lost = [(tx_id, fence, raised[tx_id]) for tx_id, fence in claims if tx_id in raised]
        self._queue_again(node, lost)
        return len(lost)

    def _raise_fences(self, node: str, fences: Mapping[str, int]) -> dict[str, int]:
        """New fences in SQL, above those of these claims and above what SQL has.

        SQL may be further ahead than one claim: a restore raised it, or Redis lost a claim that
        SQL had heard of. A claim is in Redis before SQL hears of its fence, so where Redis still
        has the old one, it is the last.
        """
        raised = self._record.raise_fences(list(fences.items()))
        left = [tx for tx in fences if tx not in raised]
        ahead = {
            each.tx_id: each.fence
            for each in (self._record.summaries(left) if left else [])
            if not each.is_final and each.fence > fences[each.tx_id] + 1
        }
        found = self._live.named_many(list(ahead), HELD) if ahead else []
        still_held = [
            (tx, ahead[tx])
            for tx, fields in zip(ahead, found, strict=True)
            if fields.get("node") == node and fields.get("fence") == str(fences[tx])
        ]
        if still_held:
            raised |= self._record.raise_fences(still_held)
        return raised

    def _queue_again(self, node: str, fenced: Sequence[tuple[str, int, int]]) -> int:
        answers = self._live.take_over_many(fenced, node)
        bells = [replace(answer, alone=True) for answer in answers if isinstance(answer, Bell)]
        self._ringer.ring(bells)
        return len(bells)

    def _follow_sql(self, node: str, tx_ids: Sequence[str], fences: Mapping[str, int]) -> int:
        """What is final in SQL ends in Redis too; what is not this node's leaves its list."""
        summaries = self._record.summaries(tx_ids) if tx_ids else []
        still_open = follow_summaries(self._live, summaries)
        # Its row is locked by its worker or by another reaper: one of the next runs gets it.
        locked = {
            each.tx_id
            for each in still_open
            if each.tx_id in fences and each.fence <= fences[each.tx_id] + 1
        }
        self._live.drop_running(node, [tx for tx in tx_ids if tx not in locked])
        return len(summaries) - len(still_open)


def _is_mid_way(fields: Mapping[str, str], now_ms: int) -> bool:
    """A step that is not safe to run again may still be at work, if only its node was paused."""
    fence, _, limit_ms = fields.get("unsafe", "").partition(":")
    if not fence or fence != fields.get("fence") or fields.get("status") != "running":
        return False
    # A version is the time at which it was written, as long as the clock has not gone back.
    return int(fields["version"]) + int(limit_ms) > now_ms
