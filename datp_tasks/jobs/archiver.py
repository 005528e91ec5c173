"""Carry the journal and the states that are due to SQL, and let what is safe there leave Redis.

Moves:    entries of the journal to SQL; final -> archived and sleeping -> archived (a TTL is
          set). Of a transaction that goes on SQL gets a copy.
Knows:    the version it wrote. A state that changed meanwhile stays due.
Bound:    ENTRIES_MAX entries, `archiver_batch_max` states and BYTES_MAX of either at a time, for
          up to RUN_S a run. What PostgreSQL refuses or cannot do
          in time is tried in smaller parts; one entry that it refuses holds up only its shard.
Overlap:  one node at a time has the role; SQL refuses one that was paused and comes back.
Crash:    nothing leaves Redis before it is committed in SQL; entries that are read twice are
          recorded once.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from datp_tasks.errors import ArchiveRefused, RoleLost
from datp_tasks.failpoints import reach
from datp_tasks.live.archive_feed import ArchiveFeed, Copied
from datp_tasks.live.store import LiveStore
from datp_tasks.model import payload
from datp_tasks.model.journal import BrokenJournal
from datp_tasks.model.status import FINAL
from datp_tasks.process_name import unique_name
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.archiver_role import ArchiverRole
from datp_tasks.record.journal import Journal
from datp_tasks.record.journal_gap import FilesAndGap
from datp_tasks.record.states import StateCopy, States

log = logging.getLogger("datp.archiver")

#: Kind of the alert for a shard whose next entry PostgreSQL does not take.
JOURNAL_STUCK = "journal-stuck"
#: No batch begins later in a run. One takes half a second beside busy workers, so a run ends before
#: the next one begins.
RUN_S = 4.0
#: Entries of the journal at a time, as far as BYTES_MAX allows. What a busy installation leaves
#: between two runs should fit: a transaction whose entries are read at two times has two rows.
ENTRIES_MAX = 40_000
#: Journal entries, and states, in memory at a time; one that is larger goes alone.
BYTES_MAX = 67_108_864
#: A state holds its input and the outputs of steps that may be undone: about so many of them.
OUTPUTS_IN_A_STATE = 8
#: So many times as many states are read at a time as before, if those were small: each reading
#: waits for the vectors of busy workers. But no more than so many, so that what is made of them
#: finds them in the cache of the processor.
PART_GROWTH = 8
PART_MAX = 500

#: A transaction whose state is due, and the state if Redis has it.
Found = tuple[str, Copied | None]


@dataclass(frozen=True, slots=True)
class Result:
    #: Entries of the journal that SQL got.
    entries: int
    #: States that SQL got, and those of them that leave Redis.
    copied: int
    archived: int


@dataclass(frozen=True, slots=True)
class ArchiverTables:
    """Where the archiver writes: tables of SQL, and files if there is a folder for them."""

    journal: Journal
    states: States
    alerts: Alerts
    files: FilesAndGap | None


@dataclass(frozen=True, slots=True)
class Limits:
    #: How long the role is held, and how long a successor waits.
    role_s: float
    grace_s: float
    #: At a time.
    states_max: int


def run_once(live: LiveStore, tables: ArchiverTables, *, limits: Limits) -> Result:
    archiver = Archiver(live, tables, limits)
    if not archiver.take_role():
        return Result(entries=0, copied=0, archived=0)
    try:
        with _collector_paused():
            return archiver.work()
    except RoleLost as error:
        log.warning("%s", error)
        return archiver.result
    finally:
        archiver.leave_role()


class Archiver:
    """One run. It asks for the role under a name of its own."""

    def __init__(self, live: LiveStore, tables: ArchiverTables, limits: Limits) -> None:
        self._live = live
        self._limits = limits
        self._feed = ArchiveFeed(live)
        self._journal = tables.journal
        self._states = tables.states
        self._alerts = tables.alerts
        self._files = tables.files
        self._role = ArchiverRole(unique_name(), 0)
        #: Shards that cannot go on in this run, and why.
        self._stuck: dict[str, str] = {}
        self.result = Result(entries=0, copied=0, archived=0)

    def take_role(self) -> bool:
        fence = self._feed.take_role(
            self._role.node,
            role_ms=int(self._limits.role_s * 1_000),
            grace_ms=int(self._limits.grace_s * 1_000),
        )
        if fence is None:
            return False
        self._role = ArchiverRole(self._role.node, fence)
        reach("archiver.after_role")
        return True

    def leave_role(self) -> None:
        self._feed.leave_role(self._role.node)

    def work(self) -> Result:
        """As long as there is something to do, for a while."""
        until_s = time.monotonic() + RUN_S
        if self._files:
            self._files.catch_up()
        is_full, is_drained = True, False
        # Under its own name the role is not renewed, so that nodes take turns.
        while is_full and time.monotonic() < until_s:
            # Draining after each reading of states is enough, once there was nothing left: the
            # fewer drains, the more entries of a transaction share a row.
            entries, behind = (0, set[str]()) if is_drained else self.drain()
            copied = archived = 0
            is_full = bool(behind)
            if not is_full:
                found, is_full = self.read_states()
                # A copy that the journal does not lead to yet would be a gap, should Redis be
                # lost. So what has happened up to the reading of the states goes first.
                more, behind = self.drain() if found else (0, set[str]())
                entries += more
                led_to = [each for each in found if self._is_led_to(each[0], behind)]
                copied, archived = self.save_states(led_to)
                is_full = (is_full and bool(led_to)) or bool(behind)
            is_drained = not behind
            before = self.result
            self.result = Result(
                entries=before.entries + entries,
                copied=before.copied + copied,
                archived=before.archived + archived,
            )
        self._tell_of_stuck()
        return self.result

    def _is_led_to(self, tx_id: str, behind: set[str]) -> bool:
        """Whether SQL has all entries that its shard had when its state was read."""
        return tx_id[1:3] not in behind and tx_id[1:3] not in self._stuck

    # The journal.

    def drain(self) -> tuple[int, set[str]]:
        """The oldest entries of each shard, to SQL and to the files; shards that may have more."""
        shards = [shard for shard in self._live.shards if shard not in self._stuck]
        return self._drain(shards, ENTRIES_MAX) if shards else (0, set())

    def _drain(self, shards: Sequence[str], entries_max: int) -> tuple[int, set[str]]:
        try:
            drained = self._feed.read_journal(
                entries_max=entries_max,
                bytes_max=BYTES_MAX,
                entry_bytes_max=payload.OUTPUT_BYTES_MAX,
                shards=shards,
            )
        except BrokenJournal as error:
            return self._drain_in_parts(shards, entries_max, error)
        if not drained.count:
            return 0, set()
        reach("archiver.before_journal")
        try:
            self._journal.append(self._role, drained.changes, drained.marks)
        except ArchiveRefused as error:
            return self._drain_in_parts(sorted(drained.upto), drained.stream_entries, error)
        if self._files:
            self._files.append(drained.entries, self._live.server_now_ms())
        reach("archiver.after_journal")
        self._feed.drop_journal(drained)
        return drained.count, set(drained.behind)

    def _drain_in_parts(
        self, shards: Sequence[str], stream_entries: int, error: ArchiveRefused | BrokenJournal
    ) -> tuple[int, set[str]]:
        """PostgreSQL did not take a batch, or one of its entries cannot be read: each shard alone,
        then fewer entries, then none.

        A vector's entry of the stream is the smallest part, however many transactions it has.
        """
        if len(shards) > 1:
            parts = [self._drain([shard], -(-stream_entries // len(shards))) for shard in shards]
            return sum(entries for entries, _ in parts), set().union(*(b for _, b in parts))
        if stream_entries > 1:
            return self._drain(shards, stream_entries // 2)
        self._stuck[shards[0]] = str(error)
        return 0, set()

    def _tell_of_stuck(self) -> None:
        """An alert for each shard that is stuck, until it goes on."""
        told = {each.subject for each in self._alerts.open_alerts(JOURNAL_STUCK)}
        stuck = {f"shard {shard}": why for shard, why in self._stuck.items()}
        for subject, why in stuck.items():
            text = (
                f"the journal of {subject} cannot be recorded, it stays in Redis and grows: {why}"
            )
            if subject not in told and self._alerts.raise_alert(JOURNAL_STUCK, subject, text):
                log.error("%s", text, extra={"event": f"alert.{JOURNAL_STUCK}"})
        for subject in told - stuck.keys():
            self._alerts.clear_alert(JOURNAL_STUCK, subject)

    # States.

    def read_states(self) -> tuple[list[Found], bool]:
        """States that are due, as they are now; whether there may be more."""
        batch_max, bytes_max = self._limits.states_max, BYTES_MAX
        due = self._live.due("toArchiveZ", batch_max=batch_max)
        at_a_time = max(1, bytes_max // (OUTPUTS_IN_A_STATE * payload.OUTPUT_BYTES_MAX))
        found: list[Found] = []
        chars = 0
        while len(found) < len(due) and chars < bytes_max:
            part = due[len(found) : len(found) + at_a_time]
            copies = self._feed.copies(part)
            found += zip(part, copies, strict=True)
            chars += sum([len(copy.fields_json) for copy in copies if copy])
            fitting = (bytes_max - chars) * len(found) // max(1, chars)
            at_a_time = max(1, min(PART_GROWTH * at_a_time, fitting, PART_MAX))
        # Each shard gives only its share of a batch.
        fullest = max(Counter(tx[1:3] for tx in due).values(), default=0)
        is_full = fullest >= self._live.share_of(batch_max) or len(due) >= batch_max
        return found, is_full or len(found) < len(due)

    def save_states(self, found: Sequence[Found]) -> tuple[int, int]:
        """How many SQL got, and how many of them leave. What PostgreSQL refuses, or cannot do in
        time, is tried in halves; a state that it refuses alone stays due, and the others go on."""
        try:
            return self._save_together(found)
        except ArchiveRefused as error:
            if len(found) > 1:
                middle = len(found) // 2
                parts = [self.save_states(part) for part in (found[:middle], found[middle:])]
                return sum(copied for copied, _ in parts), sum(archived for _, archived in parts)
            log.error(
                "PostgreSQL does not take the state of %s, which stays in Redis: %s",
                *(found[0][0], error),
                extra={"event": "archiver.state-refused"},
            )
            return 0, 0

    def _save_together(self, found: Sequence[Found]) -> tuple[int, int]:
        copies = [as_copy(tx, copied) for tx, copied in found if copied]
        if copies:
            reach("archiver.before_states")
            self._states.save(self._role, copies)
            reach("archiver.after_states")
        # Also those that are gone from Redis: confirming takes them off the list.
        archived = self._live.confirm_archived_many(
            [as_confirmed(tx, copied) for tx, copied in found]
        )
        return len(copies), archived


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Python's collector would look again and again at many thousand rows and states, of which none
    refers to itself: a tenth of the time of a run."""
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()


def as_copy(tx_id: str, copied: Copied) -> StateCopy:
    """What SQL keeps."""
    return StateCopy(tx_id, int(copied.version), copied.status, copied.fields_json)


def as_confirmed(tx_id: str, copied: Copied | None) -> tuple[str, str, str]:
    """As `confirm_archived_many` takes it."""
    if copied is None:
        return tx_id, "", ""
    is_done = copied.is_whole and copied.status in FINAL
    return tx_id, copied.version, copied.status if is_done else ""
