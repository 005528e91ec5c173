"""Replaying and auditing: do the journals lead to what we have?

Everything is only read, and the system may go on meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta

from datp_tasks.errors import TransactionUnknown
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.store import LiveStore
from datp_tasks.model.journal import Entry
from datp_tasks.model.view import View
from datp_tasks.operator.replay import Replay, replayed
from datp_tasks.record.database import translate_outage
from datp_tasks.record.journal import Journal, Row
from datp_tasks.record.record_types import Summary
from datp_tasks.record.states import States
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.views import view_of_copy

#: How many transactions are read at a time.
AUDIT_BATCH = 500


@dataclass(frozen=True, slots=True)
class AuditPlace:
    """How far an audit is."""

    #: The last transaction that was looked at, and how many that were.
    after: str
    number: int


AUDIT_START = AuditPlace("", 0)


def chosen_places(total: int, sample: int | None, seed: int) -> set[int] | None:
    """Which of so many transactions, by their place; None: all. The same seed takes the same, so
    that an audit can be repeated."""
    if sample is None or sample >= total:
        return None
    return set(random.Random(seed).sample(range(total), sample))


class Auditor:
    def __init__(
        self,
        *,
        record: Record,
        live: LiveStore,
        states: States,
        journal: Journal,
        first_view: Callable[[Summary], View],
        keep_journal_days: int,
    ) -> None:
        self._record = record
        self._live = live
        self._states = states
        self._journal = journal
        #: A transaction as it was when it was accepted.
        self._first_view = first_view
        self._keep_journal_days = keep_journal_days

    def deltas(self, tx_id: str) -> list[Entry]:
        """Every change of a transaction, in order; also those that SQL does not have yet."""
        return self.replay(tx_id).entries

    def replay(self, tx_id: str) -> Replay:
        """Rebuild a transaction from its journal, and compare it with everything we have."""
        with translate_outage():
            found = self._record.summaries([tx_id])
            if not found:
                raise TransactionUnknown(f"there is no transaction {tx_id!r}")
            return self._replay_many(found)[0]

    def replay_many(self, tx_ids: Sequence[str]) -> list[Replay]:
        """The same for many; those that are not known are left out."""
        with translate_outage():
            return self._replay_many(self._record.summaries(tx_ids))

    def audit(self, *, sample: int | None = None, seed: int = 0) -> Iterator[Replay]:
        """Replay all transactions, or `sample` of them, by id; the same seed takes the same ones.

        The caller counts; what has `faults` does not fit.
        """
        with translate_outage():
            chosen = chosen_places(self.audit_size(), sample, seed)
        place: AuditPlace | None = AUDIT_START
        while place is not None:
            replays, place = self.audit_page(place, chosen)
            yield from replays

    def audit_page(
        self, place: AuditPlace, chosen: Set[int] | None
    ) -> tuple[list[Replay], AuditPlace | None]:
        """The next part of an audit of these places (None: of all), and where the one after it
        begins; None at the end."""
        with translate_outage():
            page = self._record.page(place.after, AUDIT_BATCH)
            taken = [
                each
                for number, each in enumerate(page, start=place.number)
                if chosen is None or number in chosen
            ]
            replays = self._replay_many(taken) if taken else []
        if len(page) < AUDIT_BATCH:
            return replays, None
        return replays, AuditPlace(page[-1].tx_id, place.number + len(page))

    def audit_size(self) -> int:
        """How many transactions an audit of all would look at."""
        return self._record.count()

    def _replay_many(self, summaries: Sequence[Summary]) -> list[Replay]:
        replays = self._replay_once(summaries)
        wrong = [each.tx_id for each in replays if each.faults]
        if not wrong:
            return replays
        # One that was just moving looks right the second time, what is wrong does not.
        again = self._replay_once(self._record.summaries(wrong))
        by_id = {each.tx_id: each for each in again}
        return [by_id.get(each.tx_id, each) for each in replays]

    def _replay_once(self, summaries: Sequence[Summary]) -> list[Replay]:
        ids = [each.tx_id for each in summaries]
        outgoing = ArchiveFeed(self._live)
        # In this order: the entries that led to a copy are read after the copy, and SQL has them
        # before they leave Redis.
        copies = self._states.load(ids)
        live = dict(zip(ids, outgoing.states(ids), strict=True))
        waiting = outgoing.waiting_entries(ids)
        rows: dict[str, list[Row]] = {tx: [] for tx in ids}
        for row in self._journal.rows(ids):
            rows[row.tx_id].append(row)
        replays = []
        for each in summaries:
            known: list[tuple[str, View]] = []
            if each.tx_id in copies:
                known.append(("its archived state", view_of_copy(copies[each.tx_id])))
            if live[each.tx_id]:
                known.append(("its live state", view_of_copy(live[each.tx_id])))
            first = self._first_view(each)
            recorded, entries = rows[each.tx_id], waiting.get(each.tx_id, [])
            if not (recorded or entries) and self._was_dropped(each):
                replays.append(Replay(each.tx_id, [], None, dropped=True))
            else:
                replays.append(replayed(each, first, recorded, entries, known=known))
        return replays

    def _was_dropped(self, summary: Summary) -> bool:
        """Whether it ended so long ago that its journal may be gone by order."""
        days = self._keep_journal_days
        if not days or summary.completed_at is None:
            return False
        now = self._record.server_now()
        return summary.completed_at < now - timedelta(days=days)
