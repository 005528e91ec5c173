"""Find what fell between two lines: lost bells, and accepted rows that never reached Redis.

Moves:    nothing -> queued for the rows; rings for both.
Knows:    only how long a transaction has been waiting. A long queue looks like lost bells, so
          where bells are still waiting in a queue only a few more are rung.
Bound:    `reconciler_batch_max` queued transactions, PAGES_MAX pages of recent rows and one page
          of older ones a run; the older ones in turn, round and round.
Overlap:  harmless: a second bell finds the door shut, a second create finds the transaction.
Crash:    the next run does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datp_tasks.archive.words import Summary
from datp_tasks.connections import Connections
from datp_tasks.intake.requests import first_state_json, ms_of
from datp_tasks.live.words import Bell, NewTransaction
from datp_tasks.model.payload import encode
from datp_tasks.model.status import Status

PAGES_MAX = 10
RING_DESPITE_BACKLOG_MAX = 50
CENTURY_S = 3_155_760_000


@dataclass(frozen=True, slots=True)
class Result:
    rung: int
    placed: int


def run_once(connections: Connections, backlog: Callable[[str], int]) -> Result:
    rung = _ring_lost(connections, backlog)
    return Result(rung=rung, placed=_place_missing(connections) + _place_older(connections))


def _ring_lost(connections: Connections, backlog: Callable[[str], int]) -> int:
    live, settings = connections.live, connections.settings
    late = live.due(
        "queuedZ",
        before_ms=settings.ring_again_after_ms,
        batch_max=settings.reconciler_batch_max,
    )
    bells = [bell for bell in live.ring_again_many(late) if isinstance(bell, Bell)]
    busy = {group for group in {bell.group for bell in bells} if backlog(group) > 0}
    waiting = [bell for bell in bells if bell.group in busy][:RING_DESPITE_BACKLOG_MAX]
    lost = [bell for bell in bells if bell.group not in busy] + waiting
    connections.ringer.ring(lost)
    return len(lost)


def _place_missing(connections: Connections) -> int:
    settings, record = connections.settings, connections.record
    placed = 0
    after = ("", "")
    for _ in range(PAGES_MAX):
        page = record.open_page(
            oldest_s=settings.reconciler_window_s,
            newest_s=settings.ring_again_after_ms / 1_000,
            after=after,
            rows_max=settings.reconciler_batch_max,
        )
        placed += _place(connections, page)
        if len(page) < settings.reconciler_batch_max:
            break
        after = (page[-1].created_at.isoformat(), page[-1].tx_id)
    return placed


def _place_older(connections: Connections) -> int:
    """Nobody may have looked for longer than the window, and what was accepted is never lost."""
    settings, redis = connections.settings, connections.redis
    cursor = connections.live.keys.outside("reconciledTo")
    created_at, _, tx_id = str(redis.get(cursor) or "").partition(" ")
    page = connections.record.open_page(
        oldest_s=CENTURY_S,
        newest_s=settings.reconciler_window_s,
        after=(created_at, tx_id),
        rows_max=settings.reconciler_batch_max,
    )
    placed = _place(connections, page)
    is_full = len(page) == settings.reconciler_batch_max
    redis.set(cursor, f"{page[-1].created_at.isoformat()} {page[-1].tx_id}" if is_full else "")
    return placed


def _place(connections: Connections, rows: Sequence[Summary]) -> int:
    known = connections.live.exist_many([row.tx_id for row in rows])
    # What is in doubt must not run again, also if Redis has lost it.
    missing = [
        row
        for row, here in zip(rows, known, strict=True)
        if not here and row.status is Status.QUEUED
    ]
    bells = connections.live.create_many([_new(connections, row) for row in missing])
    connections.ringer.ring(bells)
    return sum(bell is not None for bell in bells)


def _new(connections: Connections, row: Summary) -> NewTransaction:
    definition = connections.catalogue.version(row.pipeline, row.version)
    return NewTransaction(
        tx_id=row.tx_id,
        owner=row.owner,
        external_id=row.external_id,
        pipeline=row.pipeline,
        group=definition.group_of(0),
        step_type=definition.steps[0].type,
        place=f"{row.pipeline}/0",
        state_json=first_state_json(definition, encode(row.input)),
        metadata_json=None if row.metadata is None else encode(row.metadata),
        expires_at_ms=ms_of(row.expires_at),
    )
