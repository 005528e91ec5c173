"""The policy file: what it may say, and where its mistakes are."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks.errors import PolicyInvalid
from datp_tasks.model.actor import Role
from datp_tasks.model.approval import ACTIONS, Ask
from datp_tasks.model.approval_policy import Policy
from datp_tasks.operator.policy_file import load_policy, parse_policy


def ask(action: str, **more: Any) -> Ask:
    return Ask(action=action, subject="s", params={}, version="1", reason="r", **more)


def needed(policy: Policy, action: str, **more: Any) -> int:
    need = policy.need_for(ask(action, **more))
    return need.approvals if need else 0


def test_without_a_file_everything_that_decides_about_money_needs_another_person() -> None:
    policy = load_policy("")
    free = {action for action in ACTIONS if not needed(policy, action, size=21)}
    assert free == {"resolve.redo"}
    assert needed(policy, "bulk.cancel", size=20) == 0


def test_one_person_is_a_deliberate_choice() -> None:
    for policy in (load_policy("single-person"), parse_policy("policy: single-person", source="f")):
        assert not any(needed(policy, action, size=10_000) for action in ACTIONS)


TEXT = """
expires: 2h
rules:
  - action: resolve.*
    pipeline: [payments, pay-*]
    amount: {field: order.amount, above: 1000}
    approvals: 2
    from: [ann, bob]
    role: admin
    expires: 15m
  - {action: resolve.done, approvals: 0}
  - {action: bulk.*, above: 500, approvals: 3}
  - {action: bulk.*, approvals: 0}
"""


@pytest.mark.parametrize(
    ("action", "more", "expected"),
    [
        ("resolve.done", {"pipeline": "payments", "data": {"order": {"amount": "1000.01"}}}, 2),
        ("resolve.done", {"pipeline": "pay-out", "data": {"order": {"amount": 1001}}}, 2),
        ("resolve.done", {"pipeline": "payments", "data": {"order": {"amount": "-2000"}}}, 2),
        # What cannot be read is large.
        ("resolve.done", {"pipeline": "payments", "data": {"order": {"amount": "many"}}}, 2),
        ("resolve.done", {"pipeline": "payments", "data": {"order": {"amount": "NaN"}}}, 2),
        ("resolve.done", {"pipeline": "payments", "data": {}}, 2),
        ("resolve.done", {"pipeline": "payments", "data": {"order": {"amount": 1000}}}, 0),
        ("resolve.done", {"pipeline": "other", "data": {}}, 0),
        ("resolve.fail", {"pipeline": "other", "data": {}}, 1),
        ("bulk.wake", {"size": 501}, 3),
        ("bulk.wake", {"size": 500}, 0),
        ("erase", {}, 1),
    ],
)
def test_the_first_rule_that_fits_decides_and_then_the_defaults(
    action: str, more: dict[str, Any], expected: int
) -> None:
    assert needed(parse_policy(TEXT, source="f"), action, **more) == expected


def test_a_rule_says_who_and_how_long() -> None:
    policy = parse_policy(TEXT, source="f")
    need = policy.need_for(ask("resolve.done", pipeline="payments", data={}))
    assert need is not None
    assert (need.role, need.persons, need.expires_s) == (Role.ADMIN, ("ann", "bob"), 900)
    other = policy.need_for(ask("erase"))
    assert other is not None
    assert (other.role, other.persons, other.expires_s) == (Role.APPROVER, (), 7_200)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules:\n  - action: resolve.don\n    approvals: 1", "line 2: no action is called"),
        ("rules:\n  - action: erase\n    aprovals: 1", "line 3: 'aprovals' is not known here"),
        ("rules:\n  - action: erase", "line 2: approvals is missing"),
        ("rules:\n\n  - {action: erase, approvals: -1}", "line 3: approvals must be a whole"),
        ("rules:\n  - {action: erase, approvals: true}", "line 2: approvals must be a whole"),
        ("rules:\n  - action: erase\n    approvals: 2\n    from: [ann, ann]", "line 4: names 1"),
        ("rules:\n  - {action: erase, approvals: 1, role: viewer}", "line 2: role must be one of"),
        ("policy: two-eyes", "line 1: policy must be one of four-eyes, single-person"),
        ("a: 1\nexpires: 2", "line 2: expires must be a number and m, h or d"),
        ("breakGlass: 1", "line 1: breakGlass must be one of true, false"),
        ("rules: 5", "line 1: rules must be a list"),
        ("rules:\n  - {action: erase, approvals: 1, amount: 5}", "line 2: must be a mapping"),
        ("rules:\n  - {action: erase, approvals: 1, amount: {field: a}}", "line 2: amount needs"),
        ("x: [", "line 1"),
        ("- 1", "line 1: must be a mapping"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(PolicyInvalid) as error:
        parse_policy(text, source="policy.yaml")
    assert f"policy.yaml: {message}" in str(error.value)


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(PolicyInvalid, match=r"POLICY_FILE: /no/such/file cannot be read"):
        load_policy("/no/such/file")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        # YAML reads an empty value as none; it must not mean "one person may do it alone".
        ("rules:\n  - action: resolve.done\n    approvals:\n", 3, "approvals must be"),
        ("rules:\n  - {action: erase, approvals: 1, pipeline: []}\n", 2, "pipeline must"),
        ("rules:\n  - {action: [], approvals: 1}\n", 2, "action must"),
        ("rules:\n  - {action: erase, approvals: 1, from: []}\n", 2, "from must"),
        ("rules:\n  - {action: bulk.*, approvals: 1, above: }\n", 2, "above must"),
        ("rules:\n  - {action: erase, approvals: 1, amount: }\n", 2, "amount"),
        (
            "rules:\n  - {action: erase, approvals: 1, amount: {field: a, above: .nan}}\n",
            2,
            "amount needs",
        ),
        ("expires:\n", 1, "expires must"),
        ("policy: four-eyes\n---\npolicy: single-person\n", 1, "one document"),
    ],
)
def test_what_is_left_empty_is_a_mistake_and_opens_nothing(
    text: str, line: int, words: str
) -> None:
    with pytest.raises(PolicyInvalid, match=f"f: line {line}: .*{words}"):
        parse_policy(text, source="f")
