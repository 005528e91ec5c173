"""Bring Redis back to where SQL knows that it was: part of the reconciler.

The archiver counts its readings of each shard's journal, in Redis and, together with what it
read, in SQL. A shard whose count is behind that of SQL was wiped or fell back in time; then every
open transaction of it is compared with SQL, and what is missing or older is restored.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from time import monotonic

from datp_tasks.failpoints import reach
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.keys import LISTS
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.journal import Journal
from datp_tasks.record.transactions import Place
from datp_tasks.runtime.container import Container
from datp_tasks.transactions.follow_record import follow_record

log = logging.getLogger("datp.reconciler")

#: Kind of the alert that is open while a loss is being repaired.
REDIS_LOSS = "redis-loss"
LOCK_S = 60
#: How old a switch or cancel may be to be said again after a restart of Redis.
SIGNALS_AGAIN_S = 600.0
#: Transactions whose data is in memory at a time: each may have `input_bytes_max`.
RESTORED_TOGETHER_MAX = 100


def rebuild_after_loss(connections: Container) -> int:
    """How many transactions were brought back; 0 if Redis has lost nothing."""
    live, settings = connections.live, connections.settings
    outgoing = ArchiveFeed(live)
    journal = Journal(connections.engine, connections.clock)
    # In this order: the archiver moves the mark in Redis before that in SQL, so what it does in
    # between makes Redis look newer, and never older.
    known = journal.marks()
    here = outgoing.marks()
    lost = {s: mark for s, mark in known.items() if here.get(s, mark) < mark}
    run_id = outgoing.run_id()
    seen = journal.seen_server(settings.key_prefix)
    if not seen:
        journal.note_server(settings.key_prefix, run_id)
    is_new = bool(seen) and run_id != seen
    lock = live.keys.outside("rebuilding")
    if not (lost or is_new) or not connections.redis.set(lock, "1", nx=True, ex=LOCK_S):
        return 0
    if not lost:
        return _look_after_restart(connections, journal, run_id, lock)
    lost = journal.note_loss({shard: here[shard] for shard in lost})
    alerts = Alerts(connections.engine, connections.clock)
    text = f"Redis has lost writes in {len(lost)} of {len(live.shards)} shards; they are rebuilt"
    if alerts.raise_alert(REDIS_LOSS, settings.key_prefix, text):
        log.error("%s", text)
    until_s = monotonic() + settings.rebuild_run_s
    repair = Repair(connections, run_id, list(lost))
    restored, done = _restore_open(connections, repair, until_s, lock)
    if done:
        _end_final(connections, lost)
        # SQL has no mark of a shard whose journal was never read: it may be lost as well.
        suspect = [shard for shard in live.shards if shard in lost or shard not in known]
        restored += _restore_ended(connections, journal, suspect)
        reach("rebuild.before_marks")
        # One more than SQL had, so that what is read from now on cannot hide the loss.
        outgoing.set_marks({shard: mark + 1 for shard, mark in lost.items()})
        journal.note_server(settings.key_prefix, run_id)
        alerts.clear_alert(REDIS_LOSS, settings.key_prefix)
        log.warning("Redis is rebuilt: %d transactions brought back", restored)
    connections.redis.delete(lock)
    return restored


def _look_after_restart(connections: Container, journal: Journal, run_id: str, lock: str) -> int:
    """Redis was restarted; what SQL had got is there, but the last second may be missing."""
    settings = connections.settings
    every = dict.fromkeys(connections.live.shards, 0)
    until_s = monotonic() + settings.rebuild_run_s
    repair = Repair(connections, run_id, list(every))
    restored, done = _restore_open(connections, repair, until_s, lock)
    if done:
        _end_final(connections, every)
        restored += _restore_ended(connections, journal, every)
        connections.restorer.repeat_signals(
            connections.restorer.signals.recent(
                age_s=SIGNALS_AGAIN_S, rows_max=settings.reconciler_batch_max
            )
        )
        journal.note_server(settings.key_prefix, run_id)
        log.warning("Redis was restarted; %d transactions brought back", restored)
    connections.redis.delete(lock)
    return restored


def _restore_open(
    connections: Container, repair: Repair, until_s: float, lock: str
) -> tuple[int, bool]:
    """All open transactions in turn; how many were restored, and whether that was all."""
    batch_max = connections.settings.reconciler_batch_max
    after = repair.resume()
    restored = 0
    while monotonic() < until_s:
        page = connections.record.open_ids(
            since=None,
            until=connections.record.server_now(),
            after=after,
            rows_max=batch_max,
            in_doubt=True,
        )
        mine = [tx for _, tx in page if tx[1:3] in repair.shards]
        restored += _restore_older(mine, connections)
        if len(page) < batch_max:
            repair.end()
            return restored, True
        after = page[-1]
        repair.go_on(after)
        connections.redis.expire(lock, LOCK_S)
    return restored, False


class Repair:
    """How far a repair has come, as long as nothing more is lost.

    Each shard has a token. One that lacks it, or another process of Redis, has lost what was
    restored there since: then the repair begins again.
    """

    def __init__(self, connections: Container, run_id: str, shards: Sequence[str]) -> None:
        self.shards = frozenset(shards)
        self._live = connections.live
        self._run_id = run_id
        self._cursor = connections.live.keys.outside("rebuiltTo")
        self._token = ""

    def resume(self) -> Place | None:
        """The last that was compared, or None at the beginning."""
        noted = _noted(self._live.redis.get(self._cursor))
        self._token = str(noted.get("token", ""))
        tokens = self._live.send([("GET", self._key(shard)) for shard in sorted(self.shards)])
        is_whole = noted.get("runId") == self._run_id and set(tokens) == {self._token}
        if is_whole:
            return datetime.fromisoformat(noted["createdAt"]), noted["txId"]
        self._token = secrets.token_hex(8)
        self._live.send([("SET", self._key(shard), self._token) for shard in sorted(self.shards)])
        return None

    def go_on(self, after: Place) -> None:
        place = {"createdAt": after[0].isoformat(), "txId": after[1]}
        noted = {"runId": self._run_id, "token": self._token, **place}
        self._live.redis.set(self._cursor, json.dumps(noted))

    def end(self) -> None:
        self._live.redis.delete(self._cursor)
        self._live.send([("DEL", self._key(shard)) for shard in sorted(self.shards)])

    def _key(self, shard: str) -> str:
        return self._live.keys.in_shard(shard, "rebuilding")


def _noted(text: object) -> dict[str, str]:
    try:
        found = json.loads(str(text or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _restore_older(ids: Sequence[str], connections: Container) -> int:
    """Restore those that Redis does not have, or has in an older version than SQL."""
    versions = connections.restorer.views.versions(ids)
    found = connections.live.versions_many(ids)
    placed = connections.live.placed_many(ids)
    stale = [
        tx
        for tx, (version, _), here in zip(ids, found, placed, strict=True)
        if not here or (version is not None and version < versions.get(tx, 0))
    ]
    nodes = {tx: node for tx, (_, node) in zip(ids, found, strict=True)}
    restored = 0
    for first in range(0, len(stale), RESTORED_TOGETHER_MAX):
        rows = connections.record.summaries(stale[first : first + RESTORED_TOGETHER_MAX])
        going_on = [row for row in rows if not row.is_final]
        restored += connections.restorer.rebuild(going_on, nodes).restored
    return restored


def _end_final(connections: Container, lost: Mapping[str, int]) -> None:
    """What Redis thinks is under way and SQL has ended, ends."""
    for members in _members(connections, lost):
        follow_record(connections.record, connections.live, members)


def _restore_ended(connections: Container, journal: Journal, shards: Collection[str]) -> int:
    """What ended since the journal was read last: its last entries were lost with Redis."""
    since = journal.last_recorded()
    batch_max = connections.settings.reconciler_batch_max
    restored, before = 0, None
    # The log is read backwards, and only as far as the journal may be behind it.
    while since is not None:
        page = connections.record.log_page(before, batch_max)
        recent = [row for row in page if row.created_at >= since]
        ids = [row.tx_id for row in recent if row.status.is_final and row.tx_id[1:3] in shards]
        here = connections.live.exist_many(ids)
        lost = [tx for tx, known in zip(ids, here, strict=True) if not known]
        if lost:
            summaries = connections.record.summaries(lost)
            restored += connections.restorer.rebuild_finals(summaries)
        if len(recent) < batch_max:
            break
        before = page[-1].id
    return restored


def _members(connections: Container, shards: Mapping[str, int]) -> Iterator[list[str]]:
    live = connections.live
    batch: list[str] = []
    for shard in shards:
        for name in LISTS:
            if name == "toArchiveZ":
                continue
            for member, _ in live.redis.zscan_iter(live.keys.in_shard(shard, name), count=500):
                batch.append(member)
                if len(batch) >= connections.settings.reconciler_batch_max:
                    yield batch
                    batch = []
    if batch:
        yield batch
