"""What SQL knows of a transaction: its last archived copy and the journal since then, or its
accepted request and the whole journal. Folding gives the view."""

from __future__ import annotations

from collections.abc import Sequence

from datp_tasks.errors import PipelineError, StateLost
from datp_tasks.model.journal import BrokenJournal, Entry, living_branch
from datp_tasks.model.state import State
from datp_tasks.model.view import View
from datp_tasks.record.journal import Journal
from datp_tasks.record.record_types import Summary
from datp_tasks.record.states import States, version_of
from datp_tasks.transactions.state_fields import StateFields


class RecordedViews:
    def __init__(self, states: States, journal: Journal, fields: StateFields) -> None:
        self.states = states
        self.journal = journal
        self.fields = fields

    def load(self, summaries: Sequence[Summary]) -> dict[str, View | StateLost]:
        """Each transaction as far as SQL can tell, or why it cannot."""
        ids = [each.tx_id for each in summaries]
        copies = self.states.load(ids)
        # What is older than a copy is not needed, and a journal can be long.
        entries = self.journal.entries_since({tx: version_of(copies.get(tx)) for tx in ids})
        return {
            each.tx_id: self._view(each, copies.get(each.tx_id), entries.get(each.tx_id, []))
            for each in summaries
        }

    def versions(self, tx_ids: Sequence[str]) -> dict[str, int]:
        """The newest version of each that SQL has."""
        found = self.journal.last_versions(tx_ids)
        for tx, version in self.states.versions(tx_ids).items():
            found[tx] = max(version, found.get(tx, 0))
        return found

    def _view(
        self, summary: Summary, fields: dict[str, str] | None, entries: list[Entry]
    ) -> View | StateLost:
        try:
            archived = None if fields is None else view_of_copy(fields)
            if archived and (not entries or entries[-1].version <= archived.version):
                return archived
            since = _branch_since(archived, entries)
            if archived and since is not None:
                return archived.fold(since)
            if archived:
                entries = self.journal.entries([summary.tx_id]).get(summary.tx_id, [])
            return self.first(summary).fold(living_branch(entries))
        except (BrokenJournal, PipelineError, ValueError, KeyError, IndexError) as error:
            return StateLost(f"its archived state and journal do not lead to a state: {error}")

    def first(self, summary: Summary) -> View:
        """As it was when it was accepted."""
        return View(State.from_json(self.fields.first_json(summary)))


def view_of_copy(fields: dict[str, str]) -> View:
    """From a copy, live or archived, which has the deltas since its JSON as one more field."""
    deltas = fields.get("deltas", "")
    return View.from_fields(fields, [deltas] if deltas else [])


def _branch_since(archived: View | None, entries: Sequence[Entry]) -> list[Entry] | None:
    """What followed a copy; None if that is of a branch that was lost."""
    try:
        return living_branch(entries, since=archived.version) if archived else None
    except BrokenJournal:
        return None
