"""Reading the policy file: which actions need a second person. Mistakes are told with their line.

policy: four-eyes            # or single-person: nothing needs a second person
expires: 24h                 # how long a request waits
breakGlass: true             # whether one person may act alone in an emergency
rules:                       # the first that fits decides; after them come the defaults
  - action: resolve.*
    pipeline: payments
    amount: {field: amount, above: 10000}
    approvals: 2
    from: [alice, bob, carol]
    role: approver
    expires: 2h
  - action: bulk.*
    above: 500
    approvals: 1
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from datp_tasks.errors import PolicyInvalid
from datp_tasks.model.actor import Role
from datp_tasks.model.approval import ACTIONS
from datp_tasks.model.approval_policy import EXPIRES_S, Policy, Rule
from datp_tasks.pipelines.yaml_text import Place, YamlTextError, load_documents, load_lines

#: Instead of the name of a file: one person may do everything.
SINGLE_PERSON = "single-person"
DURATION = re.compile(r"([1-9][0-9]{0,5})([mhd])")
UNITS_S = {"m": 60, "h": 3_600, "d": 86_400}
TOP = {"policy", "expires", "breakGlass", "rules"}
OF_RULE = {"action", "pipeline", "amount", "above", "approvals", "from", "role", "expires"}
APPROVALS_MAX = 20
#: Roles whose word counts.
DECIDERS = (str(Role.APPROVER), str(Role.ADMIN))


def load_policy(name: str) -> Policy:
    """Of a file; without one, the strict defaults."""
    if not name:
        return Policy()
    if name == SINGLE_PERSON:
        return Policy(single_person=True)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyInvalid(f"DATP_SECURITY__POLICY_FILE: {name} cannot be read: {error}") from None
    return parse_policy(text, source=name)


def parse_policy(text: str, *, source: str) -> Policy:
    try:
        documents = load_documents(text)
        lines = load_lines(text)
    except YamlTextError as error:
        raise PolicyInvalid(f"{source}: {error}") from None
    if len(documents) > 1:
        raise PolicyInvalid(f"{source}: line 1: a policy is one document, these are several")
    return _Reader(source, lines).policy(documents[0] if documents else {})


class _Reader:
    def __init__(self, source: str, lines: Mapping[Place, int]) -> None:
        self._source = source
        self._lines = lines
        self._mistakes: list[str] = []

    def policy(self, document: Any) -> Policy:
        top = self._mapping(document, (), TOP)
        kind = self._one(top, (), "policy", "four-eyes", ("four-eyes", SINGLE_PERSON))
        break_glass = self._one(top, (), "breakGlass", True, (True, False))
        expires_s = self._duration(top, ())
        rules = top.get("rules", [])
        if not isinstance(rules, list):
            self._mistake(("rules",), "rules must be a list")
            rules = []
        found = [self._rule(rule, ("rules", index)) for index, rule in enumerate(rules)]
        if self._mistakes:
            raise PolicyInvalid("\n".join(self._mistakes))
        return Policy(
            rules=tuple(found),
            expires_s=expires_s or EXPIRES_S,
            break_glass=break_glass,
            single_person=kind == SINGLE_PERSON,
        )

    def _rule(self, given: Any, at: Place) -> Rule:
        rule = self._mapping(given, at, OF_RULE)
        for name in ("action", "approvals"):
            if name not in rule:
                self._mistake(at, f"{name} is missing")
        needed = self._number(rule, at, "approvals", APPROVALS_MAX) or 0
        persons = self._texts(rule, at, "from")
        if persons and len(set(persons)) < needed:
            self._mistake(
                (*at, "from"), f"names {len(set(persons))} persons, but {needed} must agree"
            )
        field, above = self._amount(rule, (*at, "amount"))
        role = self._one(rule, at, "role", str(Role.APPROVER), DECIDERS)
        return Rule(
            actions=self._actions(rule, at),
            approvals=needed,
            pipelines=self._texts(rule, at, "pipeline"),
            amount_field=field,
            amount_above=above,
            size_above=self._number(rule, at, "above", 10**9),
            role=Role(role),
            persons=persons,
            expires_s=self._duration(rule, at),
        )

    def _actions(self, rule: Mapping[str, Any], at: Place) -> tuple[str, ...]:
        found = self._texts(rule, at, "action")
        for pattern in found:
            if not any(fnmatchcase(action, pattern) for action in ACTIONS):
                known = ", ".join(ACTIONS)
                self._mistake(
                    (*at, "action"), f"no action is called {pattern!r}; there are {known}"
                )
        return found

    def _amount(self, rule: Mapping[str, Any], at: Place) -> tuple[str | None, Decimal | None]:
        if "amount" not in rule:
            return None, None
        amount = self._mapping(rule["amount"], at, {"field", "above"})
        field, above = amount.get("field"), amount.get("above")
        if not isinstance(field, str) or isinstance(above, bool):
            self._mistake(at, "amount needs a field (text) and above (a number)")
            return None, None
        if not isinstance(above, int | float):
            self._mistake(at, "amount needs a field (text) and above (a number)")
            return None, None
        return field, Decimal(str(above))

    def _mapping(self, given: Any, at: Place, known: set[str]) -> Mapping[str, Any]:
        if not isinstance(given, dict):
            self._mistake(at, "must be a mapping of names and values")
            return {}
        for name in given:
            if name not in known:
                allowed = ", ".join(sorted(known))
                self._mistake((*at, name), f"{name!r} is not known here; known are {allowed}")
        return given

    def _texts(self, given: Mapping[str, Any], at: Place, name: str) -> tuple[str, ...]:
        if name not in given:
            return ()
        value = given[name]
        texts = value if isinstance(value, list) else [value]
        # An empty list would fit everything.
        if not texts or not all(isinstance(each, str) and each for each in texts):
            self._mistake((*at, name), f"{name} must be a text or a list of texts")
            return ()
        return tuple(texts)

    def _number(self, given: Mapping[str, Any], at: Place, name: str, high: int) -> int | None:
        if name not in given:
            return None
        # Nothing after the colon is no number, and least of all 0.
        value = given[name]
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
            self._mistake((*at, name), f"{name} must be a whole number from 0 to {high}")
            return None
        return value

    def _duration(self, given: Mapping[str, Any], at: Place) -> float | None:
        if "expires" not in given:
            return None
        value = given["expires"]
        match = DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            self._mistake((*at, "expires"), "expires must be a number and m, h or d, as in 24h")
            return None
        return float(match[1]) * UNITS_S[match[2]]

    def _one(
        self, given: Mapping[str, Any], at: Place, name: str, default: Any, allowed: tuple[Any, ...]
    ) -> Any:
        value = given.get(name, default)
        if not any(value is each or value == each for each in allowed) or (
            isinstance(value, bool) != isinstance(allowed[0], bool)
        ):
            shown = ", ".join(str(each).lower() for each in allowed)
            self._mistake((*at, name), f"{name} must be one of {shown}")
            return default
        return value

    def _mistake(self, at: Place, text: str) -> None:
        line = self._lines.get(at) or self._lines.get(at[:-1]) or 1
        self._mistakes.append(f"{self._source}: line {line}: {text}")
