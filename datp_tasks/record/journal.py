"""The journal in SQL: every change of every transaction, in order, each row sealing those before.

Rows are only ever added, by the one who has the archiver's role. Reading an entry twice from
Redis is harmless: what is recorded already is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from psycopg2.errors import UniqueViolation
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from datp_tasks.clock import Clock
from datp_tasks.model.journal import (
    Entry,
    chained_hash,
    entries_from_text,
    place_of,
    texts_of,
)
from datp_tasks.record.archiver_role import ArchiverRole, guard, translate_refusal
from datp_tasks.record.array_text import with_array_texts
from datp_tasks.record.copying import copy_in, escaped
from datp_tasks.record.queries import Queries

#: How far the mark of SQL leaps ahead once Redis is found behind it.
LEAP = 1_000_000_000


COLUMNS = ("tx_id", "number", "first_version", "last_version", "entries", "hash")

#: Ended so long before the last entries were recorded, it may still have been on its way.
MARGIN = timedelta(minutes=2)

#: Transaction -> its entries, as text.
ByTransaction = Mapping[str, Sequence[str]]
#: Transaction -> the version of the first of its entries, and the one before that.
Places = Mapping[str, tuple[int, int]]


class Query(Queries, topic="journal"):
    copy_in: str
    insert_rows: str
    heads: str
    rows: str
    rows_since: str
    note_marks: str
    marks: str
    last_recorded: str
    seen_server: str
    note_server: str


class Row(NamedTuple):
    """A tuple, because the archiver makes one of each transaction that changed."""

    tx_id: str
    number: int
    first_version: int
    last_version: int
    entries: str
    hash: str
    #: Of a row whose payloads were erased; see `record/erasure.py`.
    content_hash: str | None = None
    erased_hash: str | None = None

    @classmethod
    def after(cls, head: Row | None, tx_id: str, texts: Sequence[str], first: int) -> Row:
        """With entries of which the first has this version."""
        text = "\n".join(texts)
        number, previous = (head.number + 1, head.hash) if head else (1, "")
        last = place_of(texts[-1])[0] if len(texts) > 1 else first
        return cls(tx_id, number, first, last, text, chained_hash(previous, tx_id, text))


class Journal:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def append(self, role: ArchiverRole, changes: ByTransaction, marks: Mapping[str, int]) -> int:
        """Record entries that were read from Redis, with the marks set there; rows written."""
        with translate_refusal():
            return self._append(role, changes, marks)

    def _append(self, role: ArchiverRole, changes: ByTransaction, marks: Mapping[str, int]) -> int:
        places = {tx: place_of(texts[0]) for tx, texts in changes.items()}
        try:
            with self._engine.begin() as connection:
                now = guard(connection, role)
                rows, behind = self._new_rows(connection, changes, places)
                copy_in(connection, Query.copy_in, _copy_text(rows, self._now() or now))
                written = len(rows) + len(self._catch_up(connection, behind))
                _note_marks(connection, marks)
            return written
        except IntegrityError as error:
            if not isinstance(error.orig, UniqueViolation):
                raise
            # Some were read before, in a run that was cut off between SQL and Redis, and COPY takes
            # all rows or none.
        return self._append_missing(role, changes, places, marks)

    def _append_missing(
        self,
        role: ArchiverRole,
        changes: ByTransaction,
        places: Places,
        marks: Mapping[str, int],
    ) -> int:
        """The same where some rows are there already: those are left out."""
        with self._engine.begin() as connection:
            guard(connection, role)
            rows, behind = self._new_rows(connection, changes, places)
            written = self._insert(connection, rows)
            refused = {row.tx_id: changes[row.tx_id] for row in rows if row.tx_id not in written}
            written |= self._catch_up(connection, {**refused, **behind})
            _note_marks(connection, marks)
        return len(written)

    def _new_rows(
        self, connection: Connection, changes: ByTransaction, places: Places
    ) -> tuple[list[Row], ByTransaction]:
        """A row for each transaction, and the changes of those that need a closer look first: some
        were recorded before, or the clock of Redis went back."""
        # The first entry of a transaction follows version 0: most need no look at SQL.
        heads = self._heads(connection, [tx for tx, (_, before) in places.items() if before])
        behind = {
            tx: changes[tx] for tx, head in heads.items() if places[tx][0] <= head.last_version
        }
        rows = [
            Row.after(heads.get(tx), tx, texts, places[tx][0])
            for tx, texts in changes.items()
            if tx not in behind
        ]
        return rows, behind

    def note_loss(self, marks: Mapping[str, int]) -> dict[str, int]:
        """Redis has these marks, which are behind; those that SQL has from now on."""
        with self._engine.begin() as connection:
            return _note_marks(connection, marks)

    def _catch_up(self, connection: Connection, changes: ByTransaction) -> set[str]:
        """The entries that are not recorded yet, wherever they belong."""
        if not changes:
            return set()
        recorded: dict[str, list[Row]] = {}
        for row in rows_of(connection, list(changes)):
            recorded.setdefault(row.tx_id, []).append(row)
        rows = []
        for tx, texts in changes.items():
            known = {text for row in recorded.get(tx, ()) for text in texts_of(row.entries)}
            new = [text for text in texts if text not in known]
            if new:
                head = recorded[tx][-1] if tx in recorded else None
                rows.append(Row.after(head, tx, new, place_of(new[0])[0]))
        return self._insert(connection, rows)

    def _insert(self, connection: Connection, rows: Sequence[Row]) -> set[str]:
        if not rows:
            return set()
        columns = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
        values = {**with_array_texts(columns), "now": self._now()}
        found = connection.exec_driver_sql(Query.insert_rows, values)
        return {row.tx_id for row in found}

    def _heads(self, connection: Connection, tx_ids: Sequence[str]) -> dict[str, Row]:
        if not tx_ids:
            return {}
        found = connection.exec_driver_sql(Query.heads, {"tx_id": list(tx_ids)})
        return {
            row.tx_id: Row(row.tx_id, row.number, 0, row.last_version, "", row.hash)
            for row in found
        }

    # Reading.

    def rows(self, tx_ids: Sequence[str]) -> list[Row]:
        with self._engine.connect() as connection:
            return list(rows_of(connection, tx_ids))

    def last_versions(self, tx_ids: Sequence[str]) -> dict[str, int]:
        with self._engine.connect() as connection:
            return {tx: row.last_version for tx, row in self._heads(connection, tx_ids).items()}

    def entries(self, tx_ids: Sequence[str]) -> dict[str, list[Entry]]:
        """All entries of each transaction, in the order in which they were recorded."""
        found: dict[str, list[Entry]] = {}
        for row in self.rows(tx_ids):
            found.setdefault(row.tx_id, []).extend(entries_from_text(row.entries))
        return found

    def entries_since(self, since: Mapping[str, int]) -> dict[str, list[Entry]]:
        """Those of the row that holds this version of a transaction, and of all rows after it."""
        values = {"tx_id": list(since), "since": list(since.values())}
        found: dict[str, list[Entry]] = {}
        with self._engine.connect() as connection:
            for row in connection.exec_driver_sql(Query.rows_since, values):
                found.setdefault(row.tx_id, []).extend(entries_from_text(row.entries))
        return found

    def marks(self) -> dict[str, int]:
        with self._engine.connect() as connection:
            found = connection.exec_driver_sql(Query.marks)
            return {row.shard: row.value for row in found}

    def last_recorded(self) -> datetime | None:
        """When entries were recorded last, less a margin for what was on its way then."""
        with self._engine.connect() as connection:
            found: datetime | None = connection.exec_driver_sql(Query.last_recorded).scalar()
            return None if found is None else found - MARGIN

    def seen_server(self, name: str) -> str:
        """The process of Redis that was seen last under this name, or nothing."""
        with self._engine.connect() as connection:
            found = connection.exec_driver_sql(Query.seen_server, {"name": name}).scalar()
            return str(found or "")

    def note_server(self, name: str, run_id: str) -> None:
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.note_server, {"name": name, "run_id": run_id})

    def _now(self) -> datetime | None:
        return self._clock.now()


def _note_marks(connection: Connection, marks: Mapping[str, int]) -> dict[str, int]:
    values = {"shard": list(marks), "value": list(marks.values()), "leap": LEAP}
    return {row.shard: row.value for row in connection.exec_driver_sql(Query.note_marks, values)}


def rows_of(connection: Connection, tx_ids: Sequence[str]) -> Iterator[Row]:
    for row in connection.exec_driver_sql(Query.rows, {"tx_id": list(tx_ids)}):
        yield Row(*row)


def _copy_text(rows: Sequence[Row], now: datetime) -> str:
    end = f"\t{now.isoformat()}\n"
    return "".join(
        [
            f"{escaped(row.tx_id)}\t{row.number}\t{row.first_version}\t{row.last_version}\t"
            f"{escaped(row.entries)}\t{row.hash}{end}"
            for row in rows
        ]
    )
