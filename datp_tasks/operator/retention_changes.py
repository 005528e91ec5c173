"""Changing how long an owner or a pipeline is kept: what is dropped too early is gone for good, so
a policy may want a second person for it."""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.errors import SubjectMoved
from datp_tasks.model.actor import Actor
from datp_tasks.model.approval import Ask, Order
from datp_tasks.operator.approvals import Approvals
from datp_tasks.operator.erase import Eraser
from datp_tasks.operator.runs import OperatorRuns
from datp_tasks.record.database import Connection, translate_outage
from datp_tasks.record.retention_rules import RetentionRule, RetentionRules, RuleKind

SET, REMOVE = "retention.set", "retention.remove"
#: The version of a subject that has no rule.
NONE = "none"


class RetentionChanges:
    def __init__(self, rules: RetentionRules, approvals: Approvals) -> None:
        self._rules = rules
        self._approvals = approvals
        for action in (SET, REMOVE):
            approvals.offer(action, self)

    def all(self) -> list[RetentionRule]:
        with translate_outage():
            return self._rules.all()

    def set(
        self, rule: RetentionRule, *, actor: Actor, reason: str, break_glass: bool = False
    ) -> None:
        """ApprovalNeeded is raised if the policy wants another person to agree."""
        self._ask(SET, rule, actor, reason, break_glass)

    def remove(
        self,
        kind: RuleKind,
        name: str,
        *,
        actor: Actor,
        reason: str,
        break_glass: bool = False,
    ) -> bool:
        """False if there is none."""
        rule = RetentionRule(kind, name, 0)
        if self._version(rule) == NONE:
            return False
        self._ask(REMOVE, rule, actor, reason, break_glass)
        return True

    def _ask(
        self, action: str, rule: RetentionRule, actor: Actor, reason: str, break_glass: bool
    ) -> None:
        ask = Ask(
            action=action,
            subject=rule.subject,
            params={"kind": rule.kind, "name": rule.name, "days": rule.days or None},
            version=self._version(rule),
            reason=reason,
            pipeline=rule.name if rule.kind == "pipeline" else None,
        )
        self._approvals.perform(actor, ask, break_glass=break_glass)

    def _version(self, rule: RetentionRule) -> str:
        found = {each.subject: each.days for each in self.all()}
        return str(found.get(rule.subject, NONE))

    # As an action of the gate.

    def decide(self, connection: Connection, order: Order) -> None:
        """All of it is in SQL."""
        days = self._rules.lock(connection, order.params["kind"], order.params["name"])
        found = NONE if days is None else str(days)
        if found != order.version:
            raise SubjectMoved(f"the rule of {order.subject} was {order.version} and is {found}")
        rule = RetentionRule(order.params["kind"], order.params["name"], order.params["days"] or 0)
        change = self._rules.put if order.action == SET else self._rules.remove
        change(connection, rule, order)

    def carry_out(self, order: Order, token: str | None) -> str:
        return "done"


@dataclass(frozen=True, slots=True)
class DataEnd:
    """What takes data away: an erasure at once or in parts, a retention rule by their age."""

    eraser: Eraser
    retention: RetentionChanges
    runs: OperatorRuns
