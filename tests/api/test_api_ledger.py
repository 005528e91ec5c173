"""Ledger services, claims and decisions about batches over HTTP, and receipts by transaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from datp_tasks.ledger.batch_list import derived_id, transaction_ids, unsigned_batch_list
from datp_tasks.model.actor import Role
from datp_tasks.model.ledger_batch import BatchState
from tests.support.api_house import ApiHouse

POLICY = Path(__file__).parent / "two_persons_for_batches.yaml"
SETTINGS = {"ledger_hosts": ("127.0.0.1:1",), "policy_file": str(POLICY)}
URL = "http://127.0.0.1:1"


@pytest.fixture
def bob(house: ApiHouse) -> httpx.Client:
    return house.client(house.new_owner("bob"), Role.ADMIN)


@pytest.fixture
def parked(house: ApiHouse, ops: httpx.Client) -> tuple[str, str]:
    """A batch that an operator has parked."""
    added = ops.post("/v1/services", json={"service": "saw", "kind": "sawtooth", "url": URL})
    assert added.status_code == 201, added.text
    name = derived_id(house.new_owner("batch"))
    ledger = house.kit.connections.ledger
    ledger.intake.submit_many([("saw", unsigned_batch_list(name, b"{}"), None)])
    answer = ops.post(f"/v1/batches/saw/{name}/park", json={"reason": "looks odd"})
    assert answer.json() == {"service": "saw", "batchId": name, "state": "PARKED"}
    return "saw", name


def test_services_and_claims_are_listed(ops: httpx.Client, parked: Any) -> None:
    found = ops.get("/v1/services").json()
    assert found["kinds"] == ["sawtooth", "scabbard"]
    assert {"service": "saw", "kind": "sawtooth", "url": URL, "secret": None} in found["services"]
    [claim] = ops.get("/v1/claims", params={"service": "saw"}).json()["claims"]
    assert (claim["claimant"], claim["waiting"] >= 1) == (None, True)


@pytest.mark.parametrize(
    "changes",
    [{"kind": "paper"}, {"url": "http://elsewhere"}, {"secret": "a b"}, {"service": "a b"}],
)
def test_a_service_that_cannot_be_is_refused(ops: httpx.Client, changes: dict[str, str]) -> None:
    wanted = {"service": "new", "kind": "sawtooth", "url": URL} | changes
    refused = ops.post("/v1/services", json=wanted)
    assert refused.status_code == 422
    assert "Traceback" not in refused.text


def test_resolving_a_batch_takes_two_persons_and_is_audited(
    house: ApiHouse, ops: httpx.Client, bob: httpx.Client, parked: tuple[str, str]
) -> None:
    path = "/v1/batches/{}/{}".format(*parked)
    wanted = {"state": "COMMITTED", "reason": "seen in the ledger"}
    asked = ops.post(f"{path}/resolve", json=wanted)
    assert asked.status_code == 202, asked.text
    assert ops.get(path).json()["state"] == "PARKED", "nothing happens before another agrees"
    number = asked.json()["approval"]
    assert ops.post(f"/v1/approvals/{number}/approve", json={}).status_code in (403, 409)
    assert bob.post(f"/v1/approvals/{number}/approve", json={}).status_code == 200
    assert bob.get(path).json()["state"] == "COMMITTED"
    again = ops.post(f"{path}/resolve", json=wanted)
    assert again.status_code == 409
    rows = house.kit.connections.engine.connect().exec_driver_sql(
        "SELECT action, actor FROM operator_action WHERE action LIKE 'batch%%' ORDER BY id"
    )
    actions = [row.action for row in rows]
    assert {"batch.park", "batch.resolve"} <= set(actions)


def test_what_cannot_be_done_says_why(ops: httpx.Client, parked: tuple[str, str]) -> None:
    path = "/v1/batches/{}/{}".format(*parked)
    assert ops.post(f"{path}/park", json={"reason": "again"}).status_code == 409
    assert ops.post(f"{path}/resolve", json={"state": "NEW", "reason": "x"}).status_code == 422
    assert ops.post("/v1/batches/saw/none/park", json={"reason": "x"}).status_code == 404
    assert ops.post(f"{path}/resume", json={"reason": ""}).status_code == 422
    assert ops.post(f"{path}/resume", json={"reason": "fine"}).json()["state"] == "NEW"


def test_each_transaction_of_a_batch_has_a_receipt(
    house: ApiHouse, ops: httpx.Client, parked: tuple[str, str], zeta: httpx.Client
) -> None:
    service, name = parked
    path = f"/v1/batches/{service}/{name}/receipts"
    [one] = transaction_ids(unsigned_batch_list(name, b"{}"))
    waiting = {"transactionId": one, "state": "PARKED", "note": None}
    page = ops.get(path).json()
    assert (page["receipts"], page["hasMore"], page["limit"]) == ([waiting], False, 200)
    assert zeta.get(path).status_code in (403, 404)
    receipt = json.dumps({"invalid_transactions": [{"id": one, "message": "no money"}]})
    with house.kit.connections.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE ledger_batch SET state = 'INVALID', final_at = now(), receipt = %s "
            "WHERE batch_id = %s",
            (receipt, name),
        )
    [shown] = ops.get(path).json()["receipts"]
    assert (shown["state"], shown["note"]) == (str(BatchState.INVALID), "no money")
