"""Find what fell between two lines: lost bells, rows and cancels that never reached Redis, and
losses of Redis.

Moves:    nothing -> queued for accepted rows; (any) -> final where SQL has decided and Redis does
          not know; (lost) -> queued, sleeping or in-doubt after Redis was wiped or fell back in
          time. Rings for what is queued, and asks those to stop whose cancel only SQL has.
Knows:    how long a transaction has been waiting. A long queue looks like lost bells, so where
          bells are still waiting in a queue only a few more are rung, and hardly any once there
          are as many messages as transactions. A mark in each shard, which SQL has too, tells that
          Redis has lost writes.
Bound:    LINE_PAGES_MAX pages of the line of queued transactions, FRESH_PAGES_MAX pages of rows
          accepted since the last run, the newest first, PAGES_MAX pages of the rows of the window
          and one page of older ones, CANCEL_PAGES_MAX pages of cancels since the last run; a page
          has BATCH_MAX rows. Where a run ends, the next one goes on, round and round.
          A rebuild goes on for up to REBUILD_RUN_S.
Overlap:  harmless: `claim` refuses a second bell, a second create finds the transaction, a
          second restore finds a newer version. One rebuilds at a time.
Crash:    the next run does the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from datp_tasks.bells.ringer import Ringer
from datp_tasks.jobs.rebuild import SIGNALS_AGAIN_S, Rebuild, RebuildTables
from datp_tasks.live.job_notes import Cursors
from datp_tasks.live.live_types import Bell
from datp_tasks.live.reading import queued_ms
from datp_tasks.live.store import LiveStore
from datp_tasks.model.status import Status
from datp_tasks.record.signals import Signal
from datp_tasks.record.transactions import Place, Record
from datp_tasks.transactions.follow_record import follow_record
from datp_tasks.transactions.rebuild_lost import Rebuilder

#: One page of ids; a run looks at several.
BATCH_MAX = 1_000
LINE_PAGES_MAX = 10
FRESH_PAGES_MAX = 5
PAGES_MAX = 5
CANCEL_PAGES_MAX = 5
#: Bells a run for each group in whose queue messages still wait: one of those may be missing, and
#: the oldest of the line are the most likely ones. With the default period that is ten a second.
RING_DESPITE_BACKLOG_MAX = 20
#: A row shows when its commit began, so one that is older may become visible later.
FRESH_OVERLAP_S = 10.0
#: A row that Redis does not have is placed after so long. Its client needs milliseconds for that.
PLACE_AFTER_MS = 2_000
#: Rows that Redis does not have are almost always new: younger ones are looked at five times as
#: often.
WINDOW_S = 3_600
#: One stretch of rebuilding Redis; the next run goes on from there.
REBUILD_RUN_S = 60.0
#: Transactions whose data is in memory at a time: each may have `input_bytes_max`.
PLACED_TOGETHER_MAX = 100


@dataclass(frozen=True, slots=True)
class Result:
    rung: int
    placed: int
    #: Brought back after Redis had lost them.
    rebuilt: int


def run_once(
    live: LiveStore,
    tables: RebuildTables,
    rebuilder: Rebuilder,
    ringer: Ringer,
    backlog: Callable[[str], int],
    *,
    ring_again_after_ms: int,
) -> Result:
    """`ring_again_after_ms`: what has been queued for so long is rung for again."""
    rebuild = Rebuild(live, tables, rebuilder, run_s=REBUILD_RUN_S, batch_max=BATCH_MAX)
    lost_bells = LostBells(live, tables.record, ringer, backlog, ring_again_after_ms)
    missing_rows = MissingRows(live, tables.record, rebuilder)
    # First what Redis has lost: it is queued anew, and need not be looked for below.
    rebuilt = rebuild.run()
    LostCancels(live, tables.record, rebuilder, ringer).ask()
    return Result(rung=lost_bells.ring(), placed=missing_rows.place(), rebuilt=rebuilt)


class LostBells:
    """What is queued, and whose bell no worker has answered."""

    def __init__(
        self,
        live: LiveStore,
        record: Record,
        ringer: Ringer,
        backlog: Callable[[str], int],
        after_ms: int,
    ) -> None:
        self._live = live
        self._record = record
        self._ringer = ringer
        self._backlog = backlog
        self._after_ms = after_ms
        self._cursors = Cursors(live, "reconcilerH")

    def ring(self) -> int:
        """Only those that are rung lose their place in the line."""
        late = self._late()
        # Its finish script never ran, or Redis lost that.
        ended = follow_record(self._record, self._live, late)
        bells = [
            bell
            for bell in self._live.ring_again_many([tx for tx in late if tx not in ended])
            if isinstance(bell, Bell)
        ]
        self._ringer.ring(bells, requeued=False)
        return len(bells)

    def _late(self) -> list[str]:
        """Those to ring for: the front of the line in every run, the rest of it in turn."""
        share = self._live.share_of(BATCH_MAX)
        choice = Choice(self._live, self._backlog)
        goes_on = int(self._cursors.get("line") or share)
        rank, is_full = 0, True
        for _ in range(LINE_PAGES_MAX):
            page, is_full = self._live.overdue_page(
                "queuedZ",
                before_ms=self._after_ms,
                rank=rank,
                rows_max=BATCH_MAX,
            )
            choice.add(page)
            if not is_full:
                goes_on = share
                break
            rank = rank + share if rank else goes_on
        chosen = choice.made()
        if is_full:
            # Those that are rung leave their places, and the others of their shard move up.
            moves_up = max(Counter(tx[1:3] for tx in chosen).values(), default=0)
            goes_on = max(share, rank - moves_up)
        self._cursors.set("line", str(goes_on))
        return chosen


class Choice:
    """What to ring for: all that are late, but few of a group in whose queue messages wait.

    There the bell of each is probably one of the messages. So no more are sent than transactions
    wait, and beyond that only for one that has waited twice as long as at its last bell: the queue
    of a group whose workers are busy or absent for days stays short.
    """

    def __init__(self, live: LiveStore, backlog: Callable[[str], int]) -> None:
        self._live = live
        self._backlog = backlog
        self._late: dict[str, _Late] = {}

    def add(self, page: Sequence[tuple[str, float]]) -> None:
        """Some of the line, each with the time of its last bell."""
        found = self._live.named_many([tx for tx, _ in page], ("group", "sequence", "rung"))
        for (tx_id, last_ms), fields in zip(page, found, strict=True):
            since_ms = queued_ms(last_ms, fields.get("sequence"), fields.get("rung"))
            self._late[tx_id] = _Late(fields.get("group", ""), since_ms, last_ms)

    def made(self) -> list[str]:
        now_ms = self._live.server_now_ms()
        waiting = Counter(late.group for late in self._late.values())
        # One without a group is gone: asking for its bell takes it off the line.
        messages = {group: self._backlog(group) if group else 0 for group in waiting}
        rung: Counter[str] = Counter()
        chosen = []
        # They came shard by shard; those without a bell for the longest come first.
        for tx_id, late in sorted(self._late.items(), key=lambda each: each[1].last_ms):
            group = late.group
            if messages[group]:
                is_short = messages[group] + rung[group] < waiting[group]
                if not is_short and now_ms - late.last_ms < late.last_ms - late.since_ms:
                    continue
                if rung[group] == RING_DESPITE_BACKLOG_MAX:
                    continue
            rung[group] += 1
            chosen.append(tx_id)
        return chosen


@dataclass(frozen=True, slots=True)
class _Late:
    """One whose bell no worker has answered for a while."""

    group: str
    since_ms: float
    last_ms: float


class MissingRows:
    """Accepted rows that never reached Redis."""

    def __init__(self, live: LiveStore, record: Record, rebuilder: Rebuilder) -> None:
        self._live = live
        self._record = record
        self._rebuilder = rebuilder
        self._cursors = Cursors(live, "reconcilerH")

    def place(self) -> int:
        """What was accepted is never lost, however long ago, and what is new waits for seconds."""
        now = self._record.server_now()
        # Its client may still be about to place a younger one; should both, one finds it done.
        young = now - timedelta(milliseconds=PLACE_AFTER_MS)
        window = now - timedelta(seconds=WINDOW_S)
        placed = self._place_fresh(window, young)
        placed += self._place_in_turn("recent", window, young, PAGES_MAX)
        return placed + self._place_in_turn("older", None, window, 1)

    def _place_fresh(self, window: datetime, young: datetime) -> int:
        """Those accepted since the last run; what is too much for a run has its turn later."""
        looked_to = self._cursors.get("fresh")
        since = window
        if looked_to:
            overlap = timedelta(seconds=FRESH_OVERLAP_S)
            since = max(window, datetime.fromisoformat(looked_to) - overlap)
        placed, after = 0, None
        for _ in range(FRESH_PAGES_MAX):
            page = self._record.open_ids(
                since=since,
                until=young,
                after=after,
                rows_max=BATCH_MAX,
                newest_first=True,
            )
            placed += self._place(page)
            if len(page) < BATCH_MAX:
                break
            after = page[-1]
        self._cursors.set("fresh", young.isoformat())
        return placed

    def _place_in_turn(
        self, name: str, since: datetime | None, until: datetime, pages_max: int
    ) -> int:
        """The next pages of these rows; after the last one it begins again."""
        created_at, _, tx_id = self._cursors.get(name).partition(" ")
        after: Place | None = (datetime.fromisoformat(created_at), tx_id) if created_at else None
        placed = 0
        for _ in range(pages_max):
            page = self._record.open_ids(since=since, until=until, after=after, rows_max=BATCH_MAX)
            placed += self._place(page)
            after = page[-1] if len(page) == BATCH_MAX else None
            if after is None:
                break
        self._cursors.set(name, f"{after[0].isoformat()} {after[1]}" if after else "")
        return placed

    def _place(self, rows: Sequence[Place]) -> int:
        ids = [tx_id for _, tx_id in rows]
        known = self._live.placed_many(ids)
        missing = [tx for tx, here in zip(ids, known, strict=True) if not here]
        placed = 0
        for first in range(0, len(missing), PLACED_TOGETHER_MAX):
            found = self._record.summaries(missing[first : first + PLACED_TOGETHER_MAX])
            queued = [each for each in found if each.status is Status.QUEUED]
            placed += self._rebuilder.rebuild(queued, {}).restored
        return placed


class LostCancels:
    """Cancels whose client died after SQL had them and before Redis did."""

    def __init__(
        self, live: LiveStore, record: Record, rebuilder: Rebuilder, ringer: Ringer
    ) -> None:
        self._live = live
        self._record = record
        self._rebuilder = rebuilder
        self._ringer = ringer
        self._cursors = Cursors(live, "reconcilerH")

    def ask(self) -> None:
        """Those since the last run. What Redis has of them already is left alone."""
        now = self._record.server_now()
        # Its client may still be about to ask by itself; should both, one finds it done.
        until = now - timedelta(milliseconds=PLACE_AFTER_MS)
        since = now - timedelta(seconds=SIGNALS_AGAIN_S)
        looked_to, overlap = self._cursors.get("cancels"), timedelta(seconds=FRESH_OVERLAP_S)
        if looked_to:
            since = datetime.fromisoformat(looked_to) - overlap
        after: Place | None = None
        for _ in range(CANCEL_PAGES_MAX):
            page = self._rebuilder.signals.cancels(
                since=since, until=until, after=after, rows_max=BATCH_MAX
            )
            self._repeat([signal for _, signal in page])
            after = page[-1][0] if len(page) == BATCH_MAX else None
            if after is None:
                break
        self._cursors.set("cancels", (after[0] + overlap if after else until).isoformat())

    def _repeat(self, signals: Sequence[Signal]) -> None:
        ids = [each.tx_id for each in signals]
        here = self._live.exist_many(ids)
        # What is asleep for long is not in memory.
        gone = [tx_id for tx_id, is_here in zip(ids, here, strict=True) if not is_here]
        bells = [bell for tx_id in gone for bell in self._rebuilder.place(tx_id)]
        self._rebuilder.repeat_signals(signals)
        # Rung only now: no worker may be quicker than the cancel.
        self._ringer.ring(bells)
