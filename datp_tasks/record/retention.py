"""Dropping what is old: rows of transactions and batches that ended long ago.

Rows are deleted in bounded batches and by transaction. Partitions by time would be cheaper to
drop, but a journal can span months, and nothing of a transaction that goes on may be dropped.

A statement looks at a page of rows in the order of their time, and drops those of the page that
may go. What may not go yet is passed over, so that no number of them keeps others from going.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.record.idempotency_keys import IdempotencyKeys
from datp_tasks.record.queries import Queries
from datp_tasks.record.retention_rules import RetentionRule

#: Time and name of the last row that was looked at.
Place = tuple[datetime | str, str]
BEGINNING: Place = ("-infinity", "")


class Query(Queries, topic="retention"):
    states: str
    journals: str
    state_changes: str
    effects: str
    events: str
    webhooks: str
    batches: str
    ended: str
    ruled: str
    alerts: str
    summaries: str
    mark: str
    set_mark: str


@dataclass(frozen=True, slots=True)
class RowKind:
    """What is dropped together, by the time that says how old it is."""

    name: str
    sql: str
    #: What says how old it is stays, so the next run goes on where this one ended.
    marked: bool = False
    #: Of one owner alone: batches that a rule is about.
    owner: str | None = None


STATES = RowKind("states", Query.states)
JOURNALS = RowKind("journals", Query.journals)
STATE_CHANGES = RowKind("state_changes", Query.state_changes, marked=True)
EFFECTS = RowKind("effects", Query.effects, marked=True)
EVENTS = RowKind("events", Query.events, marked=True)
WEBHOOKS = RowKind("webhooks", Query.webhooks)
BATCHES = RowKind("batches", Query.batches)
ALERTS = RowKind("alerts", Query.alerts)


def batches_of(owner: str) -> RowKind:
    """Batches of an owner that has a rule of its own."""
    return RowKind(f"batches of {owner}", Query.batches, marked=True, owner=owner)


@dataclass(frozen=True, slots=True)
class Dropped:
    """One batch: rows that were looked at and dropped, and where the next one goes on."""

    looked: int
    dropped: int
    after: Place


class Retention:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        #: Their age is in hours, and they belong to no transaction.
        self.idempotency_keys = IdempotencyKeys(engine, clock)

    def drop(
        self, kind: RowKind, *, days: int, batch_max: int, after: Place = BEGINNING
    ) -> Dropped:
        """Drop what may go among the next rows of a kind."""
        with self._engine.begin() as connection:
            after = _marked(connection, kind) or after
            values: dict[str, Any] = {"days": days, "limit": batch_max, "now": self._clock.now()}
            values["owner"] = kind.owner
            row = connection.exec_driver_sql(
                kind.sql, {**values, "moment": after[0], "key": after[1]}
            ).first()
            if row is None:
                return Dropped(0, 0, after)
            if kind.marked:
                mark = {"name": _mark_name(kind), "moment": row.moment, "tx_id": row.key}
                connection.exec_driver_sql(Query.set_mark, mark)
            return Dropped(row.looked, row.dropped, (row.moment, row.key))

    def ended(self, *, days: int, batch_max: int, after: Place = BEGINNING) -> list[Place]:
        """Transactions that ended longer ago, from the one after `after` on."""
        values = {"days": days, "limit": batch_max, "now": self._clock.now()}
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(
                Query.ended, {**values, "moment": after[0], "key": after[1]}
            )
            return [(row.completed_at, row.tx_id) for row in rows]

    def ruled(
        self, rule: RetentionRule, *, batch_max: int, after: Place
    ) -> list[tuple[Place, bool]]:
        """What ended longer ago than a rule says, from the one after `after` on; whether it is
        what the rule is about, and due."""
        values = {"kind": rule.kind, "name": rule.name, "days": rule.days, "limit": batch_max}
        place = {"moment": after[0], "key": after[1], "now": self._clock.now()}
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.ruled, values | place)
            return [((row.completed_at, row.tx_id), row.is_due) for row in rows]

    def mark_of(self, rule: RetentionRule) -> Place:
        """Everything up to there is dropped, as far as it is the rule's."""
        with self._engine.begin() as connection:
            return _marked(connection, _kind_of(rule)) or BEGINNING

    def set_mark(self, rule: RetentionRule, place: Place) -> None:
        mark = {"name": _mark_name(_kind_of(rule)), "moment": place[0], "tx_id": place[1]}
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.set_mark, mark)

    def drop_summaries(self, tx_ids: Sequence[str], *, days: int) -> int:
        """Drop those of them that ended so long ago, with everything that belongs to them."""
        values = {"tx_id": list(tx_ids), "days": days, "now": self._clock.now()}
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(Query.summaries, values).rowcount


def _kind_of(rule: RetentionRule) -> RowKind:
    return RowKind(f"{rule.kind} {rule.name}", Query.ruled, marked=True)


def _mark_name(kind: RowKind) -> str:
    return f"retention {kind.name}"


def _marked(connection: Connection, kind: RowKind) -> Place | None:
    if not kind.marked:
        return None
    row = connection.exec_driver_sql(Query.mark, {"name": _mark_name(kind)}).first()
    return None if row is None else (row.moment, row.tx_id)
