"""Which actions need a second person: rules in the order of a file, then strict defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, Final

from datp_tasks.model.actor import Role
from datp_tasks.model.approval import Ask, Need
from datp_tasks.model.payload import Json

#: A day: long enough for the other shift, short enough that the request is still understood.
EXPIRES_S: Final = 86_400.0
#: So many transactions can be looked through one by one; a mistake with them can be mended so.
BULK_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    actions: tuple[str, ...]
    #: 0: one person may do it alone.
    approvals: int
    #: Empty: all pipelines, also what belongs to none.
    pipelines: tuple[str, ...] = ()
    #: Path of a field of the transaction's input, and the amount above which the rule fits.
    amount_field: str | None = None
    amount_above: Decimal | None = None
    #: Fits bulk actions on more than so many transactions.
    size_above: int | None = None
    role: Role = Role.APPROVER
    persons: tuple[str, ...] = ()
    expires_s: float | None = None

    def fits(self, ask: Ask) -> bool:
        if not any(fnmatchcase(ask.action, pattern) for pattern in self.actions):
            return False
        if self.pipelines and not self._pipelines_fit(ask):
            return False
        if self.size_above is not None and (ask.size or 0) <= self.size_above:
            return False
        return self._amount_fits(ask.data)

    def _pipelines_fit(self, ask: Ask) -> bool:
        """Of many, one is enough to need another person; to need none, all must fit."""
        names = ask.pipelines or (ask.pipeline or "",)
        fit = [any(fnmatchcase(name, each) for each in self.pipelines) for name in names]
        return any(fit) if self.approvals else all(fit)

    def _amount_fits(self, data: Json | None) -> bool:
        if self.amount_field is None or self.amount_above is None:
            return True
        amount = _amount(data, self.amount_field)
        # An amount that cannot be read is a large one: a missing field must not open the door.
        return amount is None or abs(amount) > self.amount_above


DEFAULTS: Final = (
    PolicyRule(actions=("resolve.done", "resolve.fail", "resolve.redo-effect"), approvals=1),
    PolicyRule(actions=("batch.resolve", "batch.resubmit"), approvals=1),
    PolicyRule(actions=("bulk.*",), approvals=1, size_above=BULK_MAX),
    PolicyRule(actions=("pipeline.use",), approvals=1),
    PolicyRule(actions=("retention.set", "retention.remove"), approvals=1),
    PolicyRule(actions=("erase",), approvals=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    rules: Sequence[PolicyRule] = ()
    expires_s: float = EXPIRES_S
    #: Whether one person may act alone in an emergency; an alert tells of it.
    break_glass: bool = True
    #: Nothing needs a second person, by deliberate choice.
    single_person: bool = False

    def need_for(self, ask: Ask) -> Need | None:
        """None: one person may do it. The first rule that fits decides."""
        if self.single_person:
            return None
        for rule in (*self.rules, *DEFAULTS):
            if rule.fits(ask):
                return self._need(rule)
        return None

    def _need(self, rule: PolicyRule) -> Need | None:
        if rule.approvals == 0:
            return None
        return Need(
            approvals=rule.approvals,
            role=rule.role,
            persons=rule.persons,
            expires_s=rule.expires_s or self.expires_s,
        )


def _amount(data: Json | None, path: str) -> Decimal | None:
    value: Any = data
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None
