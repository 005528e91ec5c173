"""The journal in SQL: every delta of every transaction, in order, without gaps, hash-chained.

A row holds one or more entries of one transaction. Its hash covers the row before it, so a row
that was altered or removed breaks the chain; a missing end shows against the version of the
archived state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.model.view import Entry

LAST = """
SELECT DISTINCT ON (tx_id) tx_id, last_sequence, hash FROM tx_journal
WHERE tx_id = ANY(%(tx_id)s) ORDER BY tx_id, first_sequence DESC
"""

ADD = """
INSERT INTO tx_journal (tx_id, first_sequence, last_sequence, entries, hash, recorded_at)
SELECT v.tx_id, v.first_sequence, v.last_sequence, v.entries, v.hash, now()
FROM unnest(%(tx_id)s::text[], %(first)s::bigint[], %(last)s::bigint[], %(entries)s::text[],
            %(hash)s::text[]) AS v (tx_id, first_sequence, last_sequence, entries, hash)
"""

READ = """
SELECT tx_id, first_sequence, last_sequence, entries, hash FROM tx_journal
WHERE tx_id = ANY(%(tx_id)s) ORDER BY tx_id, first_sequence
"""


@dataclass(frozen=True, slots=True)
class RawEntry:
    """A script call as it lies in the stream: deltas as lines of JSON, not parsed."""

    tx_id: str
    last_sequence: int
    count: int
    at_ms: int
    fence: int
    lines: str

    @property
    def first_sequence(self) -> int:
        return self.last_sequence - self.count + 1

    def to_json(self) -> str:
        deltas = self.lines.replace("\n", ",")
        return f"[{self.last_sequence},{self.at_ms},{self.fence},[{deltas}]]"


@dataclass(frozen=True, slots=True)
class Row:
    tx_id: str
    first_sequence: int
    last_sequence: int
    entries: str
    hash: str

    def parsed(self) -> list[Entry]:
        return [
            Entry(last, at_ms, fence, tuple(deltas))
            for last, at_ms, fence, deltas in json.loads(self.entries)
        ]


class GapInJournal(Exception):
    """Entries of a transaction are missing: Redis lost something before it was written down."""

    def __init__(self, gaps: dict[str, tuple[int, int]]) -> None:
        self.gaps = gaps
        super().__init__(f"{len(gaps)} transactions have gaps in their journal")


def chain_hash(before: str, tx_id: str, first: int, last: int, entries: str) -> str:
    text = f"{before}\n{tx_id}\n{first}\n{last}\n{entries}"
    return hashlib.sha256(text.encode()).hexdigest()


def write_entries(connection: Connection, entries: Sequence[RawEntry]) -> dict[str, int]:
    """Add what SQL does not have yet; the last sequence of each transaction afterwards.

    The caller holds the archiver's role in this transaction, so nobody else adds meanwhile. A
    transaction with a gap is left out and named by the error, after the others are written.
    """
    by_tx: dict[str, list[RawEntry]] = {}
    for entry in entries:
        by_tx.setdefault(entry.tx_id, []).append(entry)
    known = {
        row.tx_id: (row.last_sequence, row.hash)
        for row in connection.exec_driver_sql(LAST, {"tx_id": list(by_tx)})
    }
    rows: list[Row] = []
    gaps: dict[str, tuple[int, int]] = {}
    for tx_id, found in by_tx.items():
        last, before = known.get(tx_id, (0, ""))
        new = [entry for entry in found if entry.last_sequence > last]
        if not new:
            continue
        if _has_gap(last, new):
            gaps[tx_id] = (last, new[0].first_sequence)
            continue
        rows.append(_row(tx_id, last, before, new))
    _insert(connection, rows)
    if gaps:
        raise GapInJournal(gaps)
    return {row.tx_id: row.last_sequence for row in rows}


def _has_gap(last: int, entries: Sequence[RawEntry]) -> bool:
    for entry in entries:
        if entry.first_sequence != last + 1:
            return True
        last = entry.last_sequence
    return False


def _row(tx_id: str, last: int, before: str, entries: Sequence[RawEntry]) -> Row:
    text = "[" + ",".join(entry.to_json() for entry in entries) + "]"
    first, end = last + 1, entries[-1].last_sequence
    return Row(tx_id, first, end, text, chain_hash(before, tx_id, first, end, text))


def _insert(connection: Connection, rows: Sequence[Row]) -> None:
    if rows:
        columns: dict[str, list[Any]] = {
            "tx_id": [row.tx_id for row in rows],
            "first": [row.first_sequence for row in rows],
            "last": [row.last_sequence for row in rows],
            "entries": [row.entries for row in rows],
            "hash": [row.hash for row in rows],
        }
        connection.exec_driver_sql(ADD, columns)


class JournalReader:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def rows(self, tx_ids: Sequence[str]) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {tx_id: [] for tx_id in tx_ids}
        with self._engine.connect() as connection:
            for row in connection.exec_driver_sql(READ, {"tx_id": list(tx_ids)}):
                found[row.tx_id].append(Row(*row))
        return found

    def entries(self, tx_ids: Sequence[str]) -> dict[str, list[Entry]]:
        return {
            tx_id: [entry for row in rows for entry in row.parsed()]
            for tx_id, rows in self.rows(tx_ids).items()
        }


def broken_links(rows: Iterable[Row]) -> Iterator[str]:
    """What is wrong with the chain of one transaction, in words; nothing if all is well."""
    before, last = "", 0
    for row in rows:
        if row.first_sequence != last + 1:
            yield f"deltas {last + 1} to {row.first_sequence - 1} are missing"
        expected = chain_hash(before, row.tx_id, row.first_sequence, row.last_sequence, row.entries)
        if row.hash != expected:
            yield f"the row of deltas {row.first_sequence} to {row.last_sequence} was altered"
        before, last = row.hash, row.last_sequence
