"""Find what fell between two lines: lost bells, rows that never reached Redis, and losses of Redis.

Moves:    nothing -> queued for accepted rows; (any) -> final where SQL has decided and Redis does
          not know; (lost) -> queued, sleeping or in-doubt after Redis was wiped or fell back in
          time. Rings for what is queued.
Knows:    how long a transaction has been waiting. A long queue looks like lost bells, so where
          bells are still waiting in a queue only a few more are rung. A mark in each shard, which
          SQL has too, tells that Redis has lost writes.
Bound:    `reconciler_batch_max` queued transactions, PAGES_MAX pages of recent rows and one page
          of older ones a run; the older ones in turn, round and round. A rebuild goes on for up
          to `rebuild_run_s`, and the next run continues it.
Overlap:  harmless: a second bell finds the door shut, a second create finds the transaction, a
          second restore finds a newer version. One rebuilds at a time.
Crash:    the next run does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datp_tasks.archive.words import Summary
from datp_tasks.connections import Connections
from datp_tasks.live.words import Bell
from datp_tasks.maintenance.rebuild import rebuild_after_loss

PAGES_MAX = 10
RING_DESPITE_BACKLOG_MAX = 50
CENTURY_S = 3_155_760_000


@dataclass(frozen=True, slots=True)
class Result:
    rung: int
    placed: int
    #: Brought back after Redis had lost them.
    rebuilt: int


def run_once(connections: Connections, backlog: Callable[[str], int]) -> Result:
    rebuilt = rebuild_after_loss(connections)
    rung = _ring_lost(connections, backlog)
    placed = _place_missing(connections) + _place_older(connections)
    return Result(rung=rung, placed=placed, rebuilt=rebuilt)


def _ring_lost(connections: Connections, backlog: Callable[[str], int]) -> int:
    live, settings = connections.live, connections.settings
    late = live.due(
        "queuedZ",
        before_ms=settings.ring_again_after_ms,
        batch_max=settings.reconciler_batch_max,
    )
    ended = _follow_sql(connections, late)
    bells = [
        bell
        for bell in live.ring_again_many([tx for tx in late if tx not in ended])
        if isinstance(bell, Bell)
    ]
    busy = {group for group in {bell.group for bell in bells} if backlog(group) > 0}
    waiting = [bell for bell in bells if bell.group in busy][:RING_DESPITE_BACKLOG_MAX]
    lost = [bell for bell in bells if bell.group not in busy] + waiting
    connections.ringer.ring(lost)
    return len(lost)


def _follow_sql(connections: Connections, tx_ids: Sequence[str]) -> set[str]:
    """End in Redis what SQL has ended; its finish script never ran, or Redis lost that."""
    if not tx_ids:
        return set()
    final = connections.record.finals(tx_ids)
    connections.live.follow_sql(list(final.items()))
    return set(final)


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
    known = connections.live.placed_many([row.tx_id for row in rows])
    missing = [row for row, here in zip(rows, known, strict=True) if not here]
    if not missing:
        return 0
    return connections.resurrector.rebuild(missing, {}).restored
