"""Drop what belongs to transactions and batches that ended long ago, each kind after its own time.

Moves:    nothing in Redis; deletes rows in SQL.
Knows:    when a transaction ended. What has not ended is never touched, however old it is; nor is
          the row of one that is still in Redis, of which the archiver has something to write.
Bound:    BATCH_MAX transactions a statement, for up to RUN_S a run; the kinds take turns.
Overlap:  harmless: both delete, one finds less.
Crash:    the next run does the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from datp_tasks.live.store import LiveStore
from datp_tasks.record.retention import (
    ALERTS,
    BATCHES,
    BEGINNING,
    EFFECTS,
    EVENTS,
    JOURNALS,
    STATE_CHANGES,
    STATES,
    WEBHOOKS,
    Retention,
    RowKind,
    batches_of,
)
from datp_tasks.record.retention_rules import RetentionRule
from datp_tasks.record.signals import Signals

#: A sixth of the period of this job, so that other jobs of the group go on.
RUN_S = 10.0
#: Short statements hold no row for long.
BATCH_MAX = 1_000


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
    #: Those that were cleared.
    alerts: int = 0
    #: Transactions and batches of owners and pipelines that have a rule.
    ruled: int = 0
    #: Answers to requests that no client repeats any more.
    idempotency_keys: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    #: How long each kind is kept after its transaction has ended; 0 keeps it for ever.
    states_days: int
    journal_days: int
    state_changes_days: int
    effects_days: int
    events_days: int
    webhooks_days: int
    batches_days: int
    summaries_days: int
    #: After they were cleared.
    alerts_days: int = 0
    #: What an owner or a pipeline has is kept by its rule, in every table; the longest one counts.
    rules: Sequence[RetentionRule] = ()


def run_once(live: LiveStore, retention: Retention, signals: Signals, *, limits: Limits) -> Result:
    until_s = monotonic() + RUN_S
    dropped: Counter[str] = Counter()
    waiting = _kinds(retention, limits)
    if limits.summaries_days:
        waiting["summaries"] = _summaries(live, retention, limits)
    waiting["signals"] = _until_less(signals.forget_ended, BATCH_MAX)
    waiting["idempotency_keys"] = _until_less(retention.idempotency_keys.drop_old, BATCH_MAX)
    for rule in limits.rules:
        waiting[f"{rule.kind} {rule.name}"] = _ruled(live, retention, rule, BATCH_MAX)
        if rule.kind == "owner":
            kind = batches_of(rule.name)
            waiting[kind.name] = _batches(retention, kind, rule.days, BATCH_MAX)
    while waiting and monotonic() < until_s:
        for name, batches in list(waiting.items()):
            number = next(batches, None)
            if number is None:
                del waiting[name]
            else:
                dropped[name if " " not in name else "ruled"] += number
    return Result(**dropped)


def _kinds(retention: Retention, limits: Limits) -> dict[str, Iterator[int]]:
    """What is to be dropped, as batches: each tells how many rows it deleted."""
    periods_days = (
        (STATES, limits.states_days),
        (JOURNALS, limits.journal_days),
        (STATE_CHANGES, limits.state_changes_days),
        (EFFECTS, limits.effects_days),
        (EVENTS, limits.events_days),
        (WEBHOOKS, limits.webhooks_days),
        (BATCHES, limits.batches_days),
        (ALERTS, limits.alerts_days),
    )
    return {
        kind.name: _batches(retention, kind, days, BATCH_MAX) for kind, days in periods_days if days
    }


def _batches(retention: Retention, kind: RowKind, days: int, batch_max: int) -> Iterator[int]:
    after, looked = BEGINNING, batch_max
    while looked == batch_max:
        batch = retention.drop(kind, days=days, batch_max=batch_max, after=after)
        after, looked = batch.after, batch.looked
        yield batch.dropped


def _ruled(
    live: LiveStore, retention: Retention, rule: RetentionRule, batch_max: int
) -> Iterator[int]:
    """Transactions that a rule is about, each as a whole. What cannot go yet is met again."""
    after, looked, is_clean = retention.mark_of(rule), batch_max, True
    while looked == batch_max:
        page = retention.ruled(rule, batch_max=batch_max, after=after)
        looked = len(page)
        due = [tx_id for (_, tx_id), is_due in page if is_due]
        here = live.exist_many(due) if due else []
        left = [tx for tx, is_here in zip(due, here, strict=True) if not is_here]
        dropped = retention.drop_summaries(left, days=rule.days) if left else 0
        is_clean = is_clean and dropped == len(due)
        after = page[-1][0] if page else after
        if page and is_clean:
            retention.set_mark(rule, after)
        yield dropped


def _summaries(live: LiveStore, retention: Retention, limits: Limits) -> Iterator[int]:
    days, batch_max = limits.summaries_days, BATCH_MAX
    after, looked = BEGINNING, batch_max
    while looked == batch_max:
        ended = retention.ended(days=days, batch_max=batch_max, after=after)
        looked = len(ended)
        after = ended[-1] if ended else after
        ids = [tx_id for _, tx_id in ended]
        here = live.exist_many(ids)
        left = [tx for tx, is_here in zip(ids, here, strict=True) if not is_here]
        yield retention.drop_summaries(left, days=days) if left else 0


def _until_less(drop: Callable[..., int], batch_max: int) -> Iterator[int]:
    dropped = batch_max
    while dropped == batch_max:
        dropped = drop(rows_max=batch_max)
        yield dropped
