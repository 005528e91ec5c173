"""What people decide about sealed transactions rests sealed, and is readable for those who may."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Pipeline
from datp_tasks.errors import ApprovalNeeded
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.sealed import MASK
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.search_everywhere import places_with

ANN = Actor(name="key ann1", owner="ann", role=Role.OPERATOR)
BOB = Actor(name="key bob1", owner="bob", role=Role.ADMIN)
WORD = "zanzibar"
POLICY = """
rules:
  - {action: pipeline.use, approvals: 0}
  - {action: resolve.done, amount: {field: amount, above: 100}, approvals: 1}
  - {action: resolve.done, approvals: 0}
"""


pytestmark = pytest.mark.kit(policy=POLICY)


@pytest.fixture(autouse=True)
def pipelines(datp: Kit) -> None:
    @datp.step("t/doubt", on_crash="review")
    def doubt(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return data

    datp.use(
        Pipeline("doubted", sealed=True).step("t/doubt").build(),
        Pipeline("agreed", sealed=True)
        .step("util/approval", params={"note": "pay {{amount}} to {{name}}"})
        .build(),
    )


def in_doubt(kit: Kit, amount: int) -> str:
    kit.crash_at("hop.after_step")
    tx_id = kit.client.submit("doubted", {"name": WORD, "amount": amount}).tx_id
    kit.recover()
    assert kit.status(tx_id).status is Status.IN_DOUBT
    return tx_id


def resolve(kit: Kit, tx_id: str) -> None:
    output = {"paid": WORD}
    kit.operator.resolve(tx_id, "done", reason="asked the bank", output=output, actor=ANN)


def test_the_output_of_a_decision_is_plain_for_the_owner_only(datp: Kit) -> None:
    tx_id = in_doubt(datp, 5)
    resolve(datp, tx_id)
    summary = datp.finish(tx_id)
    assert (summary.status, summary.output) == (Status.SUCCESS, {"paid": WORD})
    query = "SELECT details ->> 'output' AS o FROM operator_action WHERE action = 'resolve'"
    with datp.connections.engine.connect() as sql:
        assert "$sealed" in sql.execute(text(query)).scalar_one()
    assert places_with(datp, WORD) == []


def test_the_policy_reads_the_amount_and_the_request_rests_sealed(datp: Kit) -> None:
    tx_id = in_doubt(datp, 500)
    with pytest.raises(ApprovalNeeded) as needed:
        resolve(datp, tx_id)
    number = needed.value.approval_id
    approvals = datp.operator.approvals
    assert approvals.store.one(number).to_json()["params"]["output"] == MASK
    assert places_with(datp, WORD) == []
    seen = datp.operator.unmask(tx_id, reason="to decide", actor=BOB)
    assert [(n, params["output"]) for n, params in seen.approvals] == [(number, {"paid": WORD})]
    approvals.approve(number, BOB)
    assert datp.finish(tx_id).output == {"paid": WORD}
    assert places_with(datp, WORD) == []


def test_what_a_sealed_pipeline_asks_people_for_rests_sealed(datp: Kit) -> None:
    tx_id = datp.submit("agreed", {"name": WORD, "amount": 7})
    [asked] = datp.operator.approvals.store.page(subject=tx_id)
    assert "unmask" in asked.reason
    assert places_with(datp, WORD) == []
    seen = datp.operator.unmask(tx_id, reason="to decide", actor=BOB)
    assert [params for _, params in seen.approvals] == [{"note": f"pay 7 to {WORD}"}]
    datp.operator.approvals.approve(asked.id, BOB)
    assert datp.finish(tx_id).status is Status.SUCCESS
    assert places_with(datp, WORD) == []
