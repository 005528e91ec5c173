"""Retention rules: what an owner or a pipeline has is kept for so long, not as settings say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.model.approval import Order
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.queries import Queries

RuleKind = Literal["owner", "pipeline"]
DAYS_MAX = 36_500


class Query(Queries, topic="retention_rules"):
    all: str
    lock: str
    one: str
    put: str
    remove: str
    forget_marks: str


@dataclass(frozen=True, slots=True)
class RetentionRule:
    kind: RuleKind
    name: str
    days: int

    @property
    def subject(self) -> str:
        """As approvals and the audit name it."""
        return f"{self.kind} {self.name}"


class RetentionRules:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def all(self) -> list[RetentionRule]:
        with self._engine.connect() as connection:
            return [RetentionRule(*row) for row in connection.exec_driver_sql(Query.all)]

    def lock(self, connection: Connection, kind: RuleKind, name: str) -> int | None:
        """The days of a rule; None if there is none. No other changes it until the commit."""
        values = {"kind": kind, "name": name}
        connection.exec_driver_sql(Query.lock, {"subject": f"retention {kind} {name}"})
        row = connection.exec_driver_sql(Query.one, values).first()
        return None if row is None else int(row.days)

    def put(self, connection: Connection, rule: RetentionRule, order: Order) -> None:
        self._change(connection, Query.put, rule, order)

    def remove(self, connection: Connection, rule: RetentionRule, order: Order) -> None:
        self._change(connection, Query.remove, rule, order)

    def _change(self, connection: Connection, sql: str, rule: RetentionRule, order: Order) -> None:
        values: dict[str, Any] = {"kind": rule.kind, "name": rule.name, "days": rule.days}
        connection.exec_driver_sql(sql, {**values, "now": self._clock.now()})
        connection.exec_driver_sql(Query.forget_marks)
        days = {"days": rule.days} if rule.days else {}
        note_action(
            connection,
            actor=order.actor,
            action=order.action,
            subject=rule.subject,
            reason=order.reason,
            details={"before": order.version, **days, **order.audit_details},
        )
