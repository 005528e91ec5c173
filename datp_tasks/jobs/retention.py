"""Drop what belongs to transactions and batches that ended long ago, each kind after its own time.

Moves:    nothing in Redis; deletes rows in SQL.
Knows:    when a transaction ended. What has not ended is never touched, however old it is; nor is
          the row of one that is still in Redis, of which the archiver has something to write.
Bound:    `retention_batch_max` transactions a statement, for up to `retention_run_s` a run; the
          kinds take turns.
Overlap:  harmless: both delete, one finds less.
Crash:    the next run does the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic

from datp_tasks.record.retention import (
    BATCHES,
    BEGINNING,
    EFFECTS,
    EVENTS,
    JOURNALS,
    STATE_CHANGES,
    STATES,
    WEBHOOKS,
    Kind,
    Retention,
)
from datp_tasks.runtime.container import Container


@dataclass(frozen=True, slots=True)
class Result:
    """Rows that were deleted."""

    #: Transactions as a whole.
    summaries: int = 0
    states: int = 0
    journals: int = 0
    state_changes: int = 0
    effects: int = 0
    events: int = 0
    webhooks: int = 0
    batches: int = 0
    #: Switches and cancels of transactions that have ended.
    signals: int = 0


def run_once(connections: Container) -> Result:
    until_s = monotonic() + connections.settings.retention_run_s
    dropped: Counter[str] = Counter()
    waiting = _kinds(connections)
    while waiting and monotonic() < until_s:
        for name, batches in list(waiting.items()):
            number = next(batches, None)
            if number is None:
                del waiting[name]
            else:
                dropped[name] += number
    return Result(**dropped)


def _kinds(connections: Container) -> dict[str, Iterator[int]]:
    """What is to be dropped, as batches: each tells how many rows it deleted."""
    settings = connections.settings
    retention = Retention(connections.engine, connections.clock)
    periods_days = (
        (STATES, settings.keep_states_days),
        (JOURNALS, settings.keep_journal_days),
        (STATE_CHANGES, settings.keep_state_changes_days),
        (EFFECTS, settings.keep_effects_days),
        (EVENTS, settings.keep_events_days),
        (WEBHOOKS, settings.keep_webhooks_days),
        (BATCHES, settings.keep_batches_days),
    )
    found = {
        kind.name: _batches(retention, kind, days, settings.retention_batch_max)
        for kind, days in periods_days
        if days
    }
    if settings.keep_summaries_days:
        found["summaries"] = _summaries(connections, retention)
    found["signals"] = _signals(connections)
    return found


def _batches(retention: Retention, kind: Kind, days: int, batch_max: int) -> Iterator[int]:
    after, looked = BEGINNING, batch_max
    while looked == batch_max:
        batch = retention.drop(kind, days=days, batch_max=batch_max, after=after)
        after, looked = batch.after, batch.looked
        yield batch.dropped


def _summaries(connections: Container, retention: Retention) -> Iterator[int]:
    settings = connections.settings
    days, batch_max = settings.keep_summaries_days, settings.retention_batch_max
    after, looked = BEGINNING, batch_max
    while looked == batch_max:
        ended = retention.ended(days=days, batch_max=batch_max, after=after)
        looked = len(ended)
        after = ended[-1] if ended else after
        ids = [tx_id for _, tx_id in ended]
        here = connections.live.exist_many(ids)
        left = [tx for tx, is_here in zip(ids, here, strict=True) if not is_here]
        yield retention.drop_summaries(left, days=days) if left else 0


def _signals(connections: Container) -> Iterator[int]:
    batch_max = connections.settings.retention_batch_max
    dropped = batch_max
    while dropped == batch_max:
        dropped = connections.restorer.signals.forget_ended(rows_max=batch_max)
        yield dropped
