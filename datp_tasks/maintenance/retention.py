"""Drop archived states and journals of transactions that ended long ago. By default all are kept.

Moves:    nothing in Redis; deletes rows in SQL.
Knows:    when a transaction ended. What has not ended is never touched, however old it is.
Bound:    `retention_batch_max` transactions of each kind a run.
Overlap:  harmless: both delete, one finds less.
Crash:    the next run does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.archive.retention import Retention
from datp_tasks.connections import Connections


@dataclass(frozen=True, slots=True)
class Result:
    #: Rows that were deleted.
    states: int
    journals: int
    #: Switches and cancels of transactions that have ended.
    signals: int


def run_once(connections: Connections) -> Result:
    settings = connections.settings
    retention = Retention(connections.engine, connections.clock)
    batch_max = settings.retention_batch_max
    states = journals = 0
    if settings.keep_states_days:
        states = retention.drop_states(days=settings.keep_states_days, batch_max=batch_max)
    if settings.keep_journal_days:
        journals = retention.drop_journals(days=settings.keep_journal_days, batch_max=batch_max)
    signals = connections.resurrector.signals.forget_ended(rows_max=batch_max)
    return Result(states=states, journals=journals, signals=signals)
