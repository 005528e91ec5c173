"""Bulk transfers in SQL: the bulk and all of its transfers are accepted by one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from datp_tasks.failpoints import reach
from datp_tasks.model.status import Status
from datp_tasks.record.acceptance import accept_statement, existing_of, hold_keys
from datp_tasks.record.attributes import set_attributes
from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import Acceptance, Existing, Summary
from datp_tasks.record.transactions import Record

#: Rows of one statement, as for other requests that come together.
ROWS_MAX = 500


class Query(Queries, topic="bulk_transfers"):
    serialize: str
    bind: str
    standing: str


@dataclass(frozen=True, slots=True)
class TransferStanding:
    """What became of a transfer so far."""

    tx_id: str
    status: Status
    note: str | None
    completed_at: datetime | None


#: For each transfer None, or the transaction that has its external id → the row of the bulk.
MakeBulk = Callable[[list[Existing | None]], Acceptance]


class BulkRecord:
    def __init__(self, record: Record) -> None:
        self._engine = record.engine
        self._record = record

    def accept(
        self, owner: str, name: str | None, transfers: Sequence[Acceptance], make: MakeBulk
    ) -> Existing | None:
        """Commit a bulk with its transfers; or the transaction that has its name, and nothing is
        committed. What `make` raises leaves nothing behind."""
        made: list[Acceptance] = []

        def make_once(existing: list[Existing | None]) -> Acceptance:
            made.append(make(existing))
            return made[-1]

        try:
            return self._accept(owner, name, transfers, make_once)
        except _NameTaken:
            return self._record.find_existing([(owner, name or "")])[owner, name or ""]
        except OperationalError as error:
            # The commit may have happened although its answer was lost.
            found = made and error.connection_invalidated
            if not found or not self._record.summaries([made[-1].tx_id]):
                raise
            return None

    def _accept(
        self, owner: str, name: str | None, transfers: Sequence[Acceptance], make: MakeBulk
    ) -> Existing | None:
        # One moment for all: it tells which transactions a bulk has accepted.
        now = self._record.clock.now()
        with self._engine.begin() as connection:
            if name is not None:
                connection.exec_driver_sql(Query.serialize, {"owner": owner, "name": name})
                before = existing_of(connection, [(owner, name)])
                if before:
                    return before[owner, name]
            found: dict[str, Existing | None] = {}
            # In one order for all: two bulks that share names must not wait for each other.
            ordered = sorted(transfers, key=lambda each: each.external_id or "")
            for start in range(0, len(ordered), ROWS_MAX):
                part = ordered[start : start + ROWS_MAX]
                rows = self._insert(connection, part, now)
                found |= {each.tx_id: row for each, row in zip(part, rows, strict=True)}
            bulk = make([found[each.tx_id] for each in transfers])
            if self._insert(connection, [bulk], now) != [None]:
                raise _NameTaken
            values = {"tx_id": bulk.tx_id, "now": now}
            connection.exec_driver_sql(Query.bind, values)
            reach("bulk_transfer.before_commit")
        return None

    def _insert(
        self, connection: Connection, wanted: Sequence[Acceptance], now: datetime | None
    ) -> list[Existing | None]:
        keys = sorted({each.data_key for each in wanted if each.data_key})
        if keys:
            hold_keys(connection, keys)
        rows = connection.exec_driver_sql(*accept_statement(wanted, now))
        accepted = {row.tx_id for row in rows}
        set_attributes(connection, wanted, accepted)
        names = [(each.owner, each.external_id or "") for each in wanted]
        refused = [n for each, n in zip(wanted, names, strict=True) if each.tx_id not in accepted]
        existing = existing_of(connection, refused) if refused else {}
        return [
            None if each.tx_id in accepted else existing[name]
            for each, name in zip(wanted, names, strict=True)
        ]

    def standing(self, owner: str, tx_ids: Sequence[str]) -> dict[str, TransferStanding]:
        """What became of these transactions of an owner; without those that are not kept."""
        values: dict[str, Any] = {"tx_id": list(tx_ids), "owner": owner}
        with self._engine.connect() as connection:
            return {
                row.tx_id: TransferStanding(
                    row.tx_id, Status(row.status), row.note, row.completed_at
                )
                for row in connection.exec_driver_sql(Query.standing, values)
            }


def is_accepted_with(bulk: Summary, transfer: Summary) -> bool:
    """Whether one commit has accepted both, the first as a bulk.

    Any client can start the pipeline of a bulk with an input that names other transactions of its
    owner. Only a bulk is bound when it is accepted, and its transfers have that moment, too.
    """
    is_bulk = bulk.no_return_at == bulk.created_at
    return is_bulk and transfer.owner == bulk.owner and transfer.created_at == bulk.created_at


class _NameTaken(Exception):
    """Another transaction got the external id of the bulk in this moment: nothing is committed."""
