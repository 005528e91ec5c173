"""Carry the journal and the states that are due to SQL, and let what is safe there leave Redis.

Moves:    entries of the journal to SQL; final -> archived and sleeping -> archived (a TTL is
          set). Of a transaction that goes on SQL gets a copy.
Knows:    the version it wrote. A state that changed meanwhile stays due.
Bound:    `journal_batch_max` entries and `archiver_batch_max` states at a time, for up to
          `archiver_run_s` a run.
Overlap:  one node at a time has the role; SQL refuses one that was paused and comes back.
Crash:    nothing leaves Redis before it is committed in SQL; entries that are read twice are
          recorded once.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections import Counter
from dataclasses import dataclass

from datp_tasks.archive.journal import Journal
from datp_tasks.archive.journal_files import JournalFiles
from datp_tasks.archive.role import Role
from datp_tasks.archive.states import Copy, States
from datp_tasks.connections import Connections
from datp_tasks.errors import RoleLost
from datp_tasks.failpoints import reach
from datp_tasks.live.outgoing import Outgoing
from datp_tasks.model.payload import encode

log = logging.getLogger("datp.archiver")


#: A transaction, its fields, and the deltas since its JSON.
Found = tuple[str, tuple[dict[str, str], list[str]]]


@dataclass(frozen=True, slots=True)
class Result:
    #: Entries of the journal that SQL got.
    entries: int
    #: States that SQL got, and those of them that leave Redis.
    copied: int
    archived: int


def run_once(connections: Connections) -> Result:
    archiver = Archiver(connections)
    if not archiver.take_role():
        return Result(entries=0, copied=0, archived=0)
    try:
        return archiver.work()
    except RoleLost as error:
        log.warning("%s", error)
        return archiver.result
    finally:
        archiver.leave_role()


class Archiver:
    """One run. It asks for the role under a name of its own."""

    def __init__(self, connections: Connections) -> None:
        self._live = connections.live
        self._settings = connections.settings
        self._outgoing = Outgoing(connections.live)
        self._journal = Journal(connections.engine, connections.clock)
        self._states = States(connections.engine, connections.clock)
        self._files = JournalFiles.of(connections.settings)
        self._role = Role(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}", 0)
        self.result = Result(entries=0, copied=0, archived=0)

    def take_role(self) -> bool:
        fence = self._outgoing.take_role(
            self._role.node,
            role_ms=int(self._settings.archiver_role_s * 1_000),
            grace_ms=int(self._settings.archiver_grace_s * 1_000),
        )
        if fence is None:
            return False
        self._role = Role(self._role.node, fence)
        reach("archiver.after_role")
        return True

    def leave_role(self) -> None:
        self._outgoing.leave_role(self._role.node)

    def work(self) -> Result:
        """As long as there is something to do, for a while."""
        until_s = time.monotonic() + self._settings.archiver_run_s
        is_full = True
        # Under its own name the role is not renewed, so that nodes take turns.
        while is_full and time.monotonic() < until_s:
            entries, is_full = self.drain()
            copied = archived = 0
            if not is_full:
                found, is_full = self.read_states()
                # A copy that the journal does not lead to yet would be a gap, should Redis be
                # lost. So what has happened up to the reading of the states goes first.
                more, is_behind = self.drain() if found else (0, False)
                entries += more
                is_full = is_full or is_behind
                if not is_behind:
                    copied, archived = self.save_states(found)
            before = self.result
            self.result = Result(
                entries=before.entries + entries,
                copied=before.copied + copied,
                archived=before.archived + archived,
            )
        return self.result

    def drain(self) -> tuple[int, bool]:
        """The oldest entries of each shard, to SQL and to the files; whether there may be more."""
        drained = self._outgoing.read_journal(entries_max=self._settings.journal_batch_max)
        if not drained.count:
            return 0, False
        reach("archiver.before_journal")
        self._journal.append(self._role, drained.changes, drained.marks)
        if self._files:
            self._files.append(drained.changes, self._live.server_now_ms())
        reach("archiver.after_journal")
        self._outgoing.drop_journal(drained)
        return drained.count, drained.is_full

    def read_states(self) -> tuple[list[Found], bool]:
        """States that are due, as they are now; whether there may be more."""
        batch_max = self._settings.archiver_batch_max
        due = self._live.due("toArchiveZ", batch_max=batch_max)
        found = list(zip(due, self._outgoing.copies(due), strict=True))
        # Each shard gives only its share of a batch.
        share = -(-batch_max // len(self._live.shards))
        fullest = max(Counter(tx[1:3] for tx in due).values(), default=0)
        return found, fullest >= share or len(due) >= batch_max

    def save_states(self, found: list[Found]) -> tuple[int, int]:
        """How many SQL got, and how many of them leave."""
        copies = [as_copy(tx, fields, deltas) for tx, (fields, deltas) in found if fields]
        if copies:
            reach("archiver.before_states")
            self._states.save(self._role, copies)
            reach("archiver.after_states")
        # Also those that are gone from Redis: confirming takes them off the list.
        archived = self._live.confirm_archived_many(
            [(tx, fields.get("version", "")) for tx, (fields, _) in found]
        )
        return len(copies), archived


def as_copy(tx_id: str, fields: dict[str, str], deltas: list[str]) -> Copy:
    """What SQL keeps: the fields, and the deltas since the JSON as one more."""
    if deltas:
        fields["deltas"] = "\n".join(deltas)
    return Copy(tx_id, int(fields["version"]), fields["status"], encode(fields))
