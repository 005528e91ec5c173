"""What the steps of a transaction have logged: read from its journal, page by page."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from datp_tasks.errors import CursorInvalid, TransactionUnknown
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.store import LiveStore
from datp_tasks.model.journal import Entry
from datp_tasks.model.log_lines import LogLine, lines_of
from datp_tasks.record.database import translate_outage
from datp_tasks.record.journal import Journal
from datp_tasks.record.transactions import Record
from datp_tasks.record.vault import Vault

CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class LogPage:
    lines: list[LogLine]
    #: Where the next page begins; None if there is none yet.
    next_cursor: str | None


class TransactionLogs:
    def __init__(self, *, record: Record, live: LiveStore, journal: Journal) -> None:
        self._record = record
        self._live = live
        self._journal = journal

    def page(self, tx_id: str, *, after: str | None = None, rows_max: int = 200) -> LogPage:
        """Lines in the order in which they were recorded, from the one after `after` on.

        `after` is the `cursor` of a line. What is sealed is one line an entry, without its text.
        """
        version, place = _parsed(after)
        with translate_outage():
            if not self._record.summaries([tx_id]):
                raise TransactionUnknown(f"there is no transaction {tx_id!r}")
            entries = _after(self._entries(tx_id, version), version)
        lines = [
            line
            for line in lines_of(entries)
            if not (line.version == version and line.place <= place)
        ]
        more = len(lines) > rows_max
        return LogPage(lines[:rows_max], lines[rows_max - 1].cursor if more else None)

    def _entries(self, tx_id: str, version: int) -> list[Entry]:
        # In this order: SQL has entries before they leave Redis.
        waiting = ArchiveFeed(self._live).waiting_entries([tx_id]).get(tx_id, [])
        recorded = self._journal.entries_since({tx_id: version}).get(tx_id, [])
        known = set(recorded)
        return [*recorded, *(entry for entry in waiting if entry not in known)]


def opened_lines(tx_id: str, entries: Sequence[Entry], vault: Vault) -> list[LogLine]:
    """The lines of a sealed transaction; only for `unmask`, which keeps who looked."""
    return list(lines_of(_opened(tx_id, entry, vault) for entry in entries))


def _opened(tx_id: str, entry: Entry, vault: Vault) -> Entry:
    deltas = [json.loads(line) for line in entry.deltas]
    for delta in deltas:
        if delta.get("log"):
            delta["log"] = vault.open(tx_id, delta["log"])
    return entry._replace(lines="\n".join(json.dumps(d, separators=(",", ":")) for d in deltas))


def _after(entries: list[Entry], version: int) -> list[Entry]:
    """From the entry of this version on; by number if a loss of Redis took it."""
    places = [place for place, entry in enumerate(entries) if entry.version == version]
    if places:
        return entries[places[-1] :]
    return [entry for entry in entries if entry.version > version]


def _parsed(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, -1
    found = CURSOR.fullmatch(cursor)
    if found is None:
        raise CursorInvalid(f"{cursor[:40]!r} is not the cursor of a log line")
    return int(found[1]), int(found[2])
