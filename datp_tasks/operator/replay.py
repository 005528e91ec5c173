"""Replaying journals: do they lead to what we have, and are they whole?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from datp_tasks.model.journal import (
    BrokenJournal,
    Entry,
    chained_hash,
    entries_from_text,
    erased_hash,
    living_branch,
)
from datp_tasks.model.state import State
from datp_tasks.model.view import View
from datp_tasks.record.journal import Row
from datp_tasks.record.record_types import Summary


@dataclass(slots=True)
class Replay:
    """A transaction folded from its journal, and whatever does not fit."""

    tx_id: str
    entries: list[Entry]
    view: View | None
    faults: list[str] = field(default_factory=list)
    #: It ended so long ago that its journal is not kept any more.
    dropped: bool = False
    #: Its payloads were erased: what is left fits, but leads to no state.
    erased: bool = False


def replayed(
    summary: Summary,
    first: View,
    rows: Sequence[Row],
    unrecorded: Sequence[Entry] = (),
    *,
    known: Sequence[tuple[str, View]] = (),
) -> Replay:
    """Fold a journal; compare with the copies that are `known` (by name) and with the summary.

    `unrecorded` are entries that are still in Redis.
    """
    if summary.erased_at is not None:
        return _erased(summary, rows, unrecorded, known)
    faults = chain_faults(summary.tx_id, rows)
    faults += [
        f"row {row.number} of its journal was erased, and it was not"
        for row in rows
        if row.erased_hash
    ]
    entries: list[Entry] = []
    try:
        for row in rows:
            entries += entries_from_text(row.entries)
        entries += [entry for entry in unrecorded if entry not in entries]
        view = first.fold(living_branch(entries))
    except (BrokenJournal, ValueError, KeyError, IndexError) as error:
        return Replay(summary.tx_id, entries, None, [*faults, f"its journal breaks off: {error}"])
    for name, copy in known:
        if copy.version == view.version:
            faults += _differences(name, view, copy)
        elif copy.version > view.version:
            faults.append(f"{name} is newer than its journal")
    return Replay(summary.tx_id, entries, view, faults + _against_summary(view, summary))


def chain_faults(tx_id: str, rows: Sequence[Row]) -> list[str]:
    """Rows that were removed, added or altered."""
    faults: list[str] = []
    previous = erased = ""
    for place, row in enumerate(rows, start=1):
        if row.number != place:
            faults.append(f"row {place} of its journal is missing")
            break
        if not _is_genuine(tx_id, row, previous, erased):
            faults.append(f"row {place} of its journal was altered")
        previous, erased = row.hash, row.erased_hash or ""
    return faults


def _is_genuine(tx_id: str, row: Row, previous: str, erased: str) -> bool:
    """An erased row is checked by what is left of it; its old hash goes on in the next row."""
    if row.erased_hash is None:
        return chained_hash(previous, tx_id, row.entries) == row.hash
    kept = (row.hash, row.content_hash or "", row.entries)
    return erased_hash(erased, tx_id, kept) == row.erased_hash


def _erased(
    summary: Summary,
    rows: Sequence[Row],
    unrecorded: Sequence[Entry],
    known: Sequence[tuple[str, View]],
) -> Replay:
    """What was erased: the chain, the order of versions, and that nothing is left."""
    faults = chain_faults(summary.tx_id, rows)
    entries = list(unrecorded)
    faults += [
        f"row {row.number} of its journal is not erased" for row in rows if not row.erased_hash
    ]
    faults += [f"{name} is not erased" for name, _ in known]
    if unrecorded:
        faults.append("its journal in Redis is not erased")
    if summary.input or any((summary.metadata, summary.output, summary.progress)):
        faults.append("its summary is not erased")
    try:
        entries = [entry for row in rows for entry in entries_from_text(row.entries)]
        living_branch(entries)
    except BrokenJournal as error:
        faults.append(f"its journal breaks off: {error}")
    return Replay(summary.tx_id, entries, None, faults, erased=True)


def _differences(name: str, folded: View, copy: View) -> list[str]:
    wrong = [
        part
        for part in ("status", "begun", "wake_ms", "wake_switch", "switches", "cancel", "progress")
        if getattr(folded, part) != getattr(copy, part)
    ]
    # Workers of releases that keep no log lines do not carry on how many there are.
    if _without_said(folded.state) != _without_said(copy.state):
        wrong.append("state")
    return [f"its journal leads to another {part} than {name}" for part in wrong]


def _without_said(state: State) -> str:
    return replace(state, said=0).to_json()


def _against_summary(view: View, summary: Summary) -> list[str]:
    if not summary.is_final:
        return []
    if view.status != summary.status:
        return [f"SQL says {summary.status}, its journal says {view.status}"]
    ending = view.state.ending
    if ending is None or ending.status != summary.status:
        # Another process than its worker ended it, without an output.
        return []
    if json.dumps(ending.output, sort_keys=True) != json.dumps(summary.output, sort_keys=True):
        return ["its journal leads to another output than its summary has"]
    return []
