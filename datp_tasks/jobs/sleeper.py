"""Wake transactions whose time has come.

Moves:    sleeping -> queued, then rings. One that left Redis is brought back first, in bulk.
Knows:    only the wake time; a switch or a cancel wakes a transaction without this job.
Bound:    `sleeper_batch_max` at a time, ROUNDS_MAX times a run; the rest waits for the next beat.
Overlap:  harmless: the wake script moves each transaction once.
Crash:    after the script and before the bell, the reconciler rings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from datp_tasks.bells.ringer import Ringer
from datp_tasks.failpoints import reach
from datp_tasks.live.live_types import Bell
from datp_tasks.live.store import LiveStore
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.follow_record import follow_summaries
from datp_tasks.transactions.locate import ask_many, is_missing
from datp_tasks.transactions.rebuild_lost import Rebuilder

ROUNDS_MAX = 10


@dataclass(frozen=True, slots=True)
class Result:
    woken: int
    #: Of those, had left Redis.
    resurrected: int


def run_once(
    live: LiveStore, record: Record, rebuilder: Rebuilder, ringer: Ringer, *, batch_max: int
) -> Result:
    woken = resurrected = 0
    for _ in range(ROUNDS_MAX):
        due = live.due("sleepingZ", batch_max=batch_max)
        asked = ask_many(rebuilder.restorer, due, partial(live.wake_many, only_due=True))
        lost = [each.tx_id for each in asked.answers if is_missing(each)]
        if lost:
            _follow_sql_or_park(live, record, rebuilder, lost)
        bells = [answer for answer in asked.answers if isinstance(answer, Bell)]
        resurrected += sum(bell.tx_id in asked.missed for bell in bells)
        reach("sleeper.before_ring")
        ringer.ring(bells)
        woken += len(bells)
        # A short batch does not mean the end: each shard gives only its share of one.
        if not bells:
            break
    return Result(woken=woken, resurrected=resurrected)


def _follow_sql_or_park(
    live: LiveStore, record: Record, rebuilder: Rebuilder, tx_ids: list[str]
) -> None:
    """Redis says that they sleep, and SQL does not have them asleep."""
    still_open = follow_summaries(live, record.summaries(tx_ids))
    rebuilder.rebuild(still_open, {}, has_begun=True)
