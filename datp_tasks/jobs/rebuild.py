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
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

from datp_tasks.failpoints import reach
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.job_notes import Cursors, Note, TurnGate
from datp_tasks.live.keys import LISTS
from datp_tasks.live.store import LiveStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.journal import Journal
from datp_tasks.record.transactions import Place, Record
from datp_tasks.transactions.follow_record import follow_record
from datp_tasks.transactions.rebuild_lost import Rebuilder

log = logging.getLogger("datp.reconciler")

#: Kind of the alert that is open while a loss is being repaired.
REDIS_LOSS = "redis-loss"
LOCK_MS = 60_000
#: How long before a restart of Redis a switch or cancel may have come to be said again.
SIGNALS_AGAIN_S = 600.0
#: Transactions whose data is in memory at a time: each may have `input_bytes_max`.
RESTORED_TOGETHER_MAX = 100


@dataclass(frozen=True, slots=True)
class RebuildTables:
    """What SQL knows of transactions and of Redis."""

    record: Record
    journal: Journal
    alerts: Alerts


class Rebuild:
    def __init__(
        self,
        live: LiveStore,
        tables: RebuildTables,
        rebuilder: Rebuilder,
        *,
        run_s: float,
        batch_max: int,
    ) -> None:
        self._live = live
        self._feed = ArchiveFeed(live)
        self._record = tables.record
        self._journal = tables.journal
        self._alerts = tables.alerts
        self._rebuilder = rebuilder
        self._run_s = run_s
        self._batch_max = batch_max
        self._prefix = live.keys.prefix
        self._lock = TurnGate(live, "rebuilding")
        self._cursors = Cursors(live, "reconcilerH")

    def run(self) -> int:
        """How many transactions were brought back; 0 if Redis has lost nothing."""
        now = self._record.server_now()
        # In this order: the archiver moves the mark in Redis before that in SQL, so what it does
        # in between makes Redis look newer, and never older.
        known = self._journal.marks()
        here = self._feed.marks()
        lost = {s: mark for s, mark in known.items() if here.get(s, mark) < mark}
        run_id = self._feed.run_id()
        seen = self._journal.seen_server(self._prefix)
        if not seen:
            self._journal.note_server(self._prefix, run_id)
        is_new = bool(seen) and run_id != seen
        if not (lost or is_new):
            self._cursors.set("wholeAt", now.isoformat())
            return 0
        if not self._lock.passes(LOCK_MS):
            return 0
        if not lost:
            restored = self._look_after_restart(run_id)
        else:
            lost = self._journal.note_loss({shard: here[shard] for shard in lost})
            restored = self._repair_loss(run_id, lost, known)
        self._lock.open()
        return restored

    def _repair_loss(self, run_id: str, lost: Mapping[str, int], known: Collection[str]) -> int:
        """Redis was wiped or fell back in time, at least in the lost shards."""
        shards = self._live.shards
        text = f"Redis has lost writes in {len(lost)} of {len(shards)} shards; they are rebuilt"
        if self._alerts.raise_alert(REDIS_LOSS, self._prefix, text):
            log.error("%s", text)
        restored, done = self._restore_open(run_id, list(lost))
        if done:
            self._end_final(lost)
            # SQL has no mark of a shard whose journal was never read: it may be lost as well.
            suspect = [shard for shard in shards if shard in lost or shard not in known]
            restored += self._restore_ended(suspect)
            # Of what SQL has no newer state of, too: it may have got a signal since.
            self._repeat_signals()
            reach("rebuild.before_marks")
            # One more than SQL had, so that what is read from now on cannot hide the loss.
            self._feed.set_marks({shard: mark + 1 for shard, mark in lost.items()})
            self._journal.note_server(self._prefix, run_id)
            self._alerts.clear_alert(REDIS_LOSS, self._prefix)
            log.warning("Redis is rebuilt: %d transactions brought back", restored)
        return restored

    def _look_after_restart(self, run_id: str) -> int:
        """Redis was restarted; what SQL had got is there, but the last second may be missing."""
        every = self._live.shards
        restored, done = self._restore_open(run_id, every)
        if done:
            self._end_final(every)
            restored += self._restore_ended(every)
            self._repeat_signals()
            self._journal.note_server(self._prefix, run_id)
            log.warning("Redis was restarted; %d transactions brought back", restored)
        return restored

    def _repeat_signals(self) -> None:
        """All of them: a client was told that its switch is set, however many others there were."""
        since = self._lost_since() - timedelta(seconds=SIGNALS_AGAIN_S)
        after = None
        while page := self._rebuilder.signals.recent(
            since=since, after=after, rows_max=self._batch_max
        ):
            self._rebuilder.repeat_signals([signal for _, signal in page])
            after = page[-1][0]
            self._lock.keep_shut(LOCK_MS)

    def _lost_since(self) -> datetime:
        """Before the loss, as far as is known: Redis may have been down for long.

        The time of the last run that found nothing lost is in Redis. Should it be lost as well, so
        is the rest of that server, and signals are repeated to all that is restored.
        """
        times = [self._record.server_now(), self._journal.last_recorded()]
        if whole_at := self._cursors.get("wholeAt"):
            times.append(datetime.fromisoformat(whole_at))
        return min(time for time in times if time is not None)

    def _restore_open(self, run_id: str, shards: Sequence[str]) -> tuple[int, bool]:
        """All open transactions in turn; how many were restored, and whether that was all."""
        until_s = monotonic() + self._run_s
        repair = Repair(self._live, run_id, shards)
        after = repair.resume()
        restored = 0
        while monotonic() < until_s:
            page = self._record.open_ids(
                since=None,
                until=self._record.server_now(),
                after=after,
                rows_max=self._batch_max,
                in_doubt=True,
            )
            restored += self._restore_older([tx for _, tx in page if tx[1:3] in repair.shards])
            if len(page) < self._batch_max:
                repair.end()
                return restored, True
            after = page[-1]
            repair.go_on(after)
            self._lock.keep_shut(LOCK_MS)
        return restored, False

    def _restore_older(self, ids: Sequence[str]) -> int:
        """Restore those that Redis does not have, or has in an older version than SQL."""
        versions = self._rebuilder.views.versions(ids)
        found = self._live.versions_many(ids)
        placed = self._live.placed_many(ids)
        stale = [
            tx
            for tx, (version, _), here in zip(ids, found, placed, strict=True)
            if not here or (version is not None and version < versions.get(tx, 0))
        ]
        nodes = {tx: node for tx, (_, node) in zip(ids, found, strict=True)}
        restored = 0
        for first in range(0, len(stale), RESTORED_TOGETHER_MAX):
            rows = self._record.summaries(stale[first : first + RESTORED_TOGETHER_MAX])
            going_on = [row for row in rows if not row.is_final]
            restored += self._rebuilder.rebuild(going_on, nodes).restored
        return restored

    def _end_final(self, lost: Collection[str]) -> None:
        """What Redis thinks is under way and SQL has ended, ends."""
        for members in self._members(lost):
            follow_record(self._record, self._live, members)

    def _restore_ended(self, shards: Collection[str]) -> int:
        """What ended since the journal was read last: its last entries were lost with Redis."""
        since = self._journal.last_recorded()
        restored, before = 0, None
        # The log is read backwards, and only as far as the journal may be behind it.
        while since is not None:
            page = self._record.log_page(before, self._batch_max)
            recent = [row for row in page if row.created_at >= since]
            ids = [row.tx_id for row in recent if row.status.is_final and row.tx_id[1:3] in shards]
            here = self._live.exist_many(ids)
            lost = [tx for tx, known in zip(ids, here, strict=True) if not known]
            if lost:
                summaries = self._record.summaries(lost)
                restored += self._rebuilder.rebuild_finals(summaries)
            if len(recent) < self._batch_max:
                break
            before = page[-1].id
        return restored

    def _members(self, shards: Collection[str]) -> Iterator[list[str]]:
        live = self._live
        batch: list[str] = []
        for shard in shards:
            for name in LISTS:
                if name == "toArchiveZ":
                    continue
                for member in live.members(shard, name):
                    batch.append(member)
                    if len(batch) >= self._batch_max:
                        yield batch
                        batch = []
        if batch:
            yield batch


class Repair:
    """How far a repair has come, as long as nothing more is lost.

    Each shard has a token. One that lacks it, or another process of Redis, has lost what was
    restored there since: then the repair begins again.
    """

    def __init__(self, live: LiveStore, run_id: str, shards: Sequence[str]) -> None:
        self.shards = frozenset(shards)
        self._live = live
        self._run_id = run_id
        self._cursor = Note(live, "rebuiltTo")
        self._token = ""

    def resume(self) -> Place | None:
        """The last that was compared, or None at the beginning."""
        noted = _noted(self._cursor.read())
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
        self._cursor.write(json.dumps(noted))

    def end(self) -> None:
        self._cursor.forget()
        self._live.send([("DEL", self._key(shard)) for shard in sorted(self.shards)])

    def _key(self, shard: str) -> str:
        return self._live.keys.in_shard(shard, "rebuilding")


def _noted(text: object) -> dict[str, str]:
    try:
        found = json.loads(str(text or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
