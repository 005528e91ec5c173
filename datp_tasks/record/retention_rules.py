"""Retention rules: what an owner or a pipeline has is kept for so long, not as settings say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Engine

from datp_tasks.clock import Clock
from datp_tasks.model.actor import Actor
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.queries import Queries

RuleKind = Literal["owner", "pipeline"]
DAYS_MAX = 36_500


class Query(Queries, topic="retention_rules"):
    all: str
    put: str
    remove: str
    forget_marks: str


@dataclass(frozen=True, slots=True)
class RetentionRule:
    kind: RuleKind
    name: str
    days: int


class RetentionRules:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def all(self) -> list[RetentionRule]:
        with self._engine.connect() as connection:
            return [RetentionRule(*row) for row in connection.exec_driver_sql(Query.all)]

    def put(self, rule: RetentionRule, *, actor: Actor, reason: str) -> None:
        self._change(Query.put, rule, "retention.set", actor, reason)

    def remove(self, kind: RuleKind, name: str, *, actor: Actor, reason: str) -> bool:
        """False if there is none."""
        return self._change(
            Query.remove, RetentionRule(kind, name, 0), "retention.remove", actor, reason
        )

    def _change(
        self, sql: str, rule: RetentionRule, action: str, actor: Actor, reason: str
    ) -> bool:
        values: dict[str, Any] = {"kind": rule.kind, "name": rule.name, "days": rule.days}
        with self._engine.begin() as connection:
            done = connection.exec_driver_sql(sql, {**values, "now": self._clock.now()})
            if not done.rowcount:
                return False
            connection.exec_driver_sql(Query.forget_marks)
            note_action(
                connection,
                actor=actor,
                action=action,
                subject=f"{rule.kind} {rule.name}",
                reason=reason,
                details={"days": rule.days} if rule.days else {},
            )
        return True
