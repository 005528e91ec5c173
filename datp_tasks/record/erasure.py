"""Erasing what transactions were about, in every table, while their trail stays.

The journal stays verifiable without its payloads. An erased row keeps its chained hash, so the row
after it still follows from it; `content_hash` is the SHA-256 of what the row said, so a copy in a
backup can be shown to be the one; `erased_hash` chains what is left of the erased rows, so that
none of them can be altered or taken out unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.model.actor import Actor
from datp_tasks.model.journal import (
    content_hash,
    entries_from_text,
    entries_to_text,
    erased_hash,
)
from datp_tasks.record.erased_values import (
    approvals_by,
    drop_views,
    erase_actions,
    erase_bulk_approvals,
    values_gone,
)
from datp_tasks.record.journal import Row, rows_of
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.queries import Queries


class Query(Queries, topic="erasure"):
    may_erase: str
    page: str
    erased_ids: str
    one_at_a_time: str
    lock_approvals: str
    lock_approvals_about: str
    lock: str
    lock_deliveries: str
    found: str
    erase_journal: str
    erase: str
    set_aside_approvals: str
    approvals_over: str
    erase_approvals: str
    batches_of: str
    batches_of_owner: str
    lock_batches: str
    erase_batches: str
    erase_answers: str
    lock_data_keys: str
    erase_data_keys: str


@dataclass(frozen=True, slots=True)
class Payloads:
    """What a transaction is about, as its summary has it."""

    tx_id: str
    documents: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ErasureOrder:
    """On whose behalf and why something is erased; what was chosen, without the erased text."""

    actor: Actor
    reason: str
    chosen: Mapping[str, Any]
    #: How it came to be allowed, for the audit.
    allowed: Mapping[str, Any] = field(default_factory=dict)


class Erasure:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction of the record, for what must be decided before anything goes."""
        return self._engine.begin()

    def may_erase(self) -> bool:
        """Not as a role that may only add to the audit (`datp db rights`)."""
        with self._engine.connect() as connection:
            return bool(connection.exec_driver_sql(Query.may_erase).scalar_one())

    def page(self, owner: str | None, *, after: str, rows_max: int) -> list[Payloads]:
        """Transactions that are not erased, by id, from the one after `after` on."""
        values = {"owner": owner, "after": after, "limit": rows_max}
        with self._engine.connect() as connection:
            return [
                Payloads(row.tx_id, tuple(json.loads(text) for text in row[1:] if text))
                for row in connection.exec_driver_sql(Query.page, values)
            ]

    def erased_ids(self) -> list[str]:
        """Everything that was erased and that the record still knows."""
        with self._engine.connect() as connection:
            return [row.tx_id for row in connection.exec_driver_sql(Query.erased_ids)]

    def obstacles(self, tx_ids: Sequence[str]) -> dict[str, str]:
        """Why some of these cannot be erased now, and what to do."""
        with self._engine.connect() as connection:
            return _obstacles(connection, tx_ids)

    def erase(self, tx_ids: Sequence[str], order: ErasureOrder) -> dict[str, str]:
        """Erase those that may be, in one commit; why the others may not."""
        ids = {"tx_id": list(tx_ids)}
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.one_at_a_time)
            # Before the transactions, as one who approves does: neither waits for the other.
            connection.exec_driver_sql(Query.lock_approvals, ids)
            connection.exec_driver_sql(Query.lock, ids)
            connection.exec_driver_sql(Query.lock_deliveries, ids)
            refused = _obstacles(connection, tx_ids)
            left = [tx for tx in tx_ids if tx not in refused]
            if left:
                heads = _erase_journal(connection, left)
                gone = values_gone(connection, left)
                connection.exec_driver_sql(Query.erase, {"tx_id": left, "now": self._now()})
                batches = connection.exec_driver_sql(Query.batches_of, {"tx_id": left}).all()
                names = _erase_batches(connection, batches)
                found = approvals_by(connection, gone, left)
                aside = self._set_aside(connection, [*left, *names], list(found))
                asked = _erase_approvals(connection, [*left, *names])
                said = erase_bulk_approvals(connection, found, gone)
                actions = erase_actions(connection, gone, left, said)
                drop_views(connection, gone)
                self._note_aside(connection, order, aside)
                # The hash of each journal's last row: the audit tells what was erased.
                erased = {tx: heads.get(tx, "") for tx in left}
                self._note(connection, order, {"erased": erased, **_named(names, asked, actions)})
        return refused

    def erase_batches_of(self, owner: str, order: ErasureOrder, *, rows_max: int) -> int:
        """Some batches of an owner that no transaction sent; how many."""
        with self._engine.begin() as connection:
            values = {"owner": owner, "limit": rows_max}
            found = connection.exec_driver_sql(Query.batches_of_owner, values).all()
            # Requests first, as one who approves locks them.
            subjects = {"subject": _batch_names(found)}
            connection.exec_driver_sql(Query.lock_approvals_about, subjects)
            batches = connection.exec_driver_sql(Query.lock_batches, _batch_columns(found)).all()
            if batches:
                names = _erase_batches(connection, batches)
                aside = self._set_aside(connection, names, [])
                asked = _erase_approvals(connection, names)
                self._note_aside(connection, order, aside)
                self._note(connection, order, _named(names, asked))
        return len(batches)

    def erase_answers_of(self, owner: str, order: ErasureOrder, *, rows_max: int) -> int:
        """Some answers that are kept for requests of an owner which were refused; how many."""
        with self._engine.begin() as connection:
            values = {"owner": owner, "limit": rows_max}
            number = connection.exec_driver_sql(Query.erase_answers, values).rowcount
            if number:
                self._note(connection, order, {"keptAnswers": number})
        return number

    def erase_data_keys_of(self, owner: str, order: ErasureOrder) -> int:
        """Delete the data keys of an owner that seal nothing any more but copies; how many.

        What is being accepted with one of them now holds it until its commit, and is seen here.
        """
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.lock_data_keys, {"owner": owner})
            rows = connection.exec_driver_sql(Query.erase_data_keys, {"owner": owner}).all()
            if rows:
                self._note(connection, order, {"dataKeys": sorted(row.id for row in rows)})
        return len(rows)

    def _set_aside(
        self, connection: Connection, subjects: Sequence[str], bulks: Sequence[int]
    ) -> Sequence[Any]:
        """Requests that wait, about nothing but what is erased: none can agree to them any more."""
        values = {"subject": list(subjects), "bulk": list(bulks), "now": self._now()}
        return connection.exec_driver_sql(Query.set_aside_approvals, values).all()

    def _note_aside(self, connection: Connection, order: ErasureOrder, rows: Sequence[Any]) -> None:
        for row in rows:
            note_action(
                connection,
                actor=order.actor,
                action="approval.stale",
                subject=f"approval {row.id}",
                reason=order.reason,
                details={"action": row.action},
                now=self._now(),
            )

    def _note(
        self, connection: Connection, order: ErasureOrder, details: Mapping[str, Any]
    ) -> None:
        note_action(
            connection,
            actor=order.actor,
            action="erase",
            subject="transactions",
            reason=order.reason,
            details={"chosen": dict(order.chosen), **order.allowed, **details},
            now=self._now(),
        )

    def _now(self) -> datetime | None:
        return self._clock.now()


def without_payload(row: Row, before: str) -> Row:
    """What is left of a row of a journal; `before` is the erased hash of the row before it."""
    text = entries_to_text([each.without_payload() for each in entries_from_text(row.entries)])
    content = content_hash(row.entries)
    chained = erased_hash(before, row.tx_id, (row.hash, content, text))
    return row._replace(entries=text, content_hash=content, erased_hash=chained)


def _erase_journal(connection: Connection, tx_ids: Sequence[str]) -> dict[str, str]:
    """Take the payloads out of journals; the erased hash of the last row of each."""
    heads: dict[str, str] = {}
    erased: list[Row] = []
    for row in rows_of(connection, tx_ids):
        if row.erased_hash is None:
            row = without_payload(row, heads.get(row.tx_id, ""))
            erased.append(row)
        heads[row.tx_id] = row.erased_hash or ""
    if erased:
        names = ("tx_id", "number", "entries", "content_hash", "erased_hash")
        values = {name: [getattr(row, name) for row in erased] for name in names}
        connection.exec_driver_sql(Query.erase_journal, values)
    return heads


def _erase_approvals(connection: Connection, subjects: Sequence[str]) -> list[str]:
    """What people were asked about these and is over; as the audit names those requests.

    A request that waits or is being carried out says what people agree to: it is never changed.
    """
    rows = connection.exec_driver_sql(Query.approvals_over, {"subject": list(subjects)}).all()
    ids = [row.id for row in rows]
    names = [f"{kind}approval {each}" for each in ids for kind in ("", "break-glass ")]
    if ids:
        connection.exec_driver_sql(Query.erase_approvals, {"id": ids, "name": names})
    return names


def _named(
    batches: Sequence[str], approvals: Sequence[str], actions: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What else was erased, for the audit: `AuditChain.verify` believes no other row."""
    found = {"batches": list(batches), "approvals": list(approvals), "actions": actions}
    return {name: named for name, named in found.items() if named}


def _erase_batches(connection: Connection, batches: Sequence[Any]) -> list[str]:
    """As alerts and the audit name them."""
    if batches:
        connection.exec_driver_sql(Query.erase_batches, _batch_columns(batches))
    return _batch_names(batches)


def _batch_columns(batches: Sequence[Any]) -> dict[str, list[str]]:
    return {
        "service": [row.service_id for row in batches],
        "batch": [row.batch_id for row in batches],
    }


def _batch_names(batches: Sequence[Any]) -> list[str]:
    return [f"{row.service_id}/{row.batch_id}" for row in batches]


def _obstacles(connection: Connection, tx_ids: Sequence[str]) -> dict[str, str]:
    found = {
        row.tx_id: row for row in connection.exec_driver_sql(Query.found, {"tx_id": list(tx_ids)})
    }
    reasons = {tx: _obstacle(found.get(tx)) for tx in tx_ids}
    return {tx: reason for tx, reason in reasons.items() if reason}


def _obstacle(row: Any) -> str:
    if row is None:
        return "there is no such transaction"
    if not row.is_final:
        return (
            f"it is {row.status}: only what has ended can be erased. Wait for its end, or cancel "
            "or resolve it first"
        )
    if row.is_told:
        return (
            "its webhook is still to be delivered. Erase again once it is delivered or given up "
            "(`datp webhooks list`)"
        )
    if row.open_batch:
        return (
            f"its batch {row.open_batch} is not final. Erase again once it is, or decide it "
            "(`datp batches resolve`)"
        )
    if row.open_approval:
        return (
            f"approval {row.open_approval} about it is being carried out, or was done by one "
            "person alone and not looked into yet. Erase again once it is executed, or its alert "
            "is closed (`datp approvals show`, `datp alerts`)"
        )
    return ""
