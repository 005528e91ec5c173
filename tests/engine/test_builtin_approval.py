"""`util/approval`: a pipeline waits for people."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.engine.builtin.approval import params_ok
from datp_tasks.errors import ApprovalForbidden, ApprovalOver, SubjectMoved
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

BOB = Actor(name="key b", owner="bob", role=Role.APPROVER)
CLEO = Actor(name="key c", owner="cleo", role=Role.ADMIN)
PARAMS = {"note": "Pay {{amount}}?", "quorum": 2, "seconds": 3_600}


@pytest.fixture
def waiting(datp: Kit) -> tuple[str, int]:
    """The transaction, and the approval that it waits for."""
    datp.use(Pipeline("pay").step("util/approval", params=PARAMS).build())
    tx_id = datp.submit("pay", {"amount": 7}, owner="acme")
    assert datp.status(tx_id).status is Status.SLEEPING
    [found] = datp.operator.approvals.store.page(subject=tx_id)
    return tx_id, found.id


def test_it_goes_on_when_enough_people_have_agreed(datp: Kit, waiting: tuple[str, int]) -> None:
    tx_id, number = waiting
    approvals = datp.operator.approvals
    approvals.approve(number, BOB, note="fine")
    assert datp.status(tx_id).status is Status.SLEEPING
    approvals.approve(number, CLEO)
    summary = datp.status(tx_id)
    assert summary.status is Status.SUCCESS
    said = [{"by": "bob", "note": "fine"}, {"by": "cleo", "note": ""}]
    assert summary.output == {"amount": 7, "approval": {"id": number, "decisions": said}}
    assert approvals.store.one(number).reason == "Pay 7?"


def test_why_tells_who_must_agree(datp: Kit, waiting: tuple[str, int]) -> None:
    tx_id, number = waiting
    why = datp.operator.why(tx_id, bells_in=lambda _: 0)
    assert why.cause == "approval"
    assert f"Approval {number} (step, asked for by owner acme) has 0 of 2" in why.answer
    assert why.hints == [f"datp approvals approve {number}   (as another person)"]


def test_one_rejection_fails_it(datp: Kit, waiting: tuple[str, int]) -> None:
    tx_id, number = waiting
    datp.operator.approvals.reject(number, BOB, note="no")
    summary = datp.status(tx_id)
    assert (summary.status, summary.note) == (Status.FAILED, f"approval {number} is rejected")


def test_a_key_of_the_owner_cannot_agree(datp: Kit, waiting: tuple[str, int]) -> None:
    with pytest.raises(ApprovalForbidden):
        datp.operator.approvals.approve(
            waiting[1], Actor(name="key a", owner="acme", role=Role.ADMIN)
        )


def test_it_expires(datp: Kit, waiting: tuple[str, int]) -> None:
    tx_id, number = waiting
    for _ in range(13):
        datp.advance(seconds=300)
    assert datp.status(tx_id).status is Status.FAILED
    assert datp.status(tx_id).note == f"approval {number} is expired"
    with pytest.raises(ApprovalOver):
        datp.operator.approvals.approve(number, BOB)


def test_setting_its_switch_by_hand_decides_nothing(datp: Kit, waiting: tuple[str, int]) -> None:
    tx_id, number = waiting
    assert datp.set_switch(tx_id, f"approval-{number}", "approved").status is Status.SLEEPING


def test_a_decision_whose_wake_up_was_lost_is_read_later(
    datp: Kit, waiting: tuple[str, int]
) -> None:
    tx_id, number = waiting
    approvals = datp.operator.approvals
    approvals.approve(number, BOB)
    datp.crash_at("approval.after_commit")
    with pytest.raises(SimulatedCrash):
        approvals.approve(number, CLEO)
    datp.recover()
    assert datp.finish(tx_id).status is Status.SUCCESS


def test_what_has_ended_needs_no_decision(datp: Kit, waiting: tuple[str, int]) -> None:
    tx_id, number = waiting
    datp.client.cancel(tx_id)
    datp.operator.approvals.approve(number, BOB)
    with pytest.raises(SubjectMoved):
        datp.operator.approvals.approve(number, CLEO)


@pytest.mark.parametrize(
    ("params", "mistake"),
    [
        ({}, "note must be given"),
        ({"note": "x", "quorum": 0}, "quorum must be"),
        ({"note": "x", "quorum": 2, "from": ["a"]}, "from names 1 persons"),
        ({"note": "x", "role": "viewer"}, "role must be approver or admin"),
        ({"note": "x", "seconds": 0}, "seconds must be"),
        ({"note": "x", "into": ""}, "into must not be empty"),
        ({"note": "x", "form": []}, "form is unknown"),
    ],
)
def test_mistakes_in_its_params_are_told(params: dict[str, Any], mistake: str) -> None:
    assert mistake in "; ".join(params_ok(params))
