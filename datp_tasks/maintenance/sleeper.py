"""Wake transactions whose time has come.

Moves:    sleeping -> queued, then rings.
Knows:    only the wake time; a switch or a cancel wakes a transaction without this job.
Bound:    `sleeper_batch_max` at a time, ROUNDS_MAX times a run; the rest waits for the next beat.
Overlap:  harmless: the wake script moves each transaction once.
Crash:    after the script and before the bell, the reconciler rings.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.connections import Connections
from datp_tasks.failpoints import reach
from datp_tasks.live.words import Bell

ROUNDS_MAX = 10


@dataclass(frozen=True, slots=True)
class Result:
    woken: int


def run_once(connections: Connections) -> Result:
    live, batch_max = connections.live, connections.settings.sleeper_batch_max
    woken = 0
    for _ in range(ROUNDS_MAX):
        due = live.due("sleepingZ", batch_max=batch_max)
        answers = live.wake_many(due, only_due=True)
        bells = [answer for answer in answers if isinstance(answer, Bell)]
        reach("sleeper.before_ring")
        connections.ringer.ring(bells)
        woken += len(bells)
        # A short batch does not mean the end: each shard gives only its share of one.
        if not bells:
            break
    return Result(woken=woken)
