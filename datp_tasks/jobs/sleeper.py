"""Wake transactions whose time has come.

Moves:    sleeping -> queued, then rings. One that left Redis is brought back first, in bulk.
Knows:    only the wake time; a switch or a cancel wakes a transaction without this job.
Bound:    `sleeper_batch_max` at a time, ROUNDS_MAX times a run; the rest waits for the next beat.
Overlap:  harmless: the wake script moves each transaction once.
Crash:    after the script and before the bell, the reconciler rings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from datp_tasks.bells.ringer import Ringer
from datp_tasks.failpoints import reach
from datp_tasks.live.store import LiveStore
from datp_tasks.live.types import Bell, Refused
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.restore import Restorer

ROUNDS_MAX = 10


@dataclass(frozen=True, slots=True)
class Result:
    woken: int
    #: Of those, had left Redis.
    resurrected: int


def run_once(
    live: LiveStore, record: Record, restorer: Restorer, ringer: Ringer, *, batch_max: int
) -> Result:
    woken = resurrected = 0
    for _ in range(ROUNDS_MAX):
        due = live.due("sleepingZ", batch_max=batch_max)
        answers = live.wake_many(due, only_due=True)
        away = _unknown(answers)
        if away:
            back = _wake_archived(live, record, restorer, away)
            resurrected += len(back)
            answers = [*answers, *back]
        bells = [answer for answer in answers if isinstance(answer, Bell)]
        reach("sleeper.before_ring")
        ringer.ring(bells)
        woken += len(bells)
        # A short batch does not mean the end: each shard gives only its share of one.
        if not bells:
            break
    return Result(woken=woken, resurrected=resurrected)


def _unknown(answers: Sequence[Bell | Refused]) -> list[str]:
    return [
        answer.tx_id
        for answer in answers
        if isinstance(answer, Refused) and answer.word == "UNKNOWN"
    ]


def _wake_archived(
    live: LiveStore, record: Record, restorer: Restorer, tx_ids: list[str]
) -> list[Bell]:
    restorer.restore(tx_ids)
    reach("sleeper.after_resurrect")
    answers = live.wake_many(tx_ids, only_due=True)
    lost = _unknown(answers)
    if lost:
        _follow_sql_or_park(live, record, restorer, lost)
    return [answer for answer in answers if isinstance(answer, Bell)]


def _follow_sql_or_park(
    live: LiveStore, record: Record, restorer: Restorer, tx_ids: list[str]
) -> None:
    """Redis says that they sleep, and SQL does not have them asleep."""
    summaries = record.summaries(tx_ids)
    final = [each for each in summaries if each.is_final]
    live.follow_sql([(each.tx_id, each.status) for each in final])
    still_open = [each for each in summaries if not each.is_final]
    restorer.rebuild(still_open, {}, has_begun=True)
