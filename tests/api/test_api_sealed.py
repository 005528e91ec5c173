"""Sealed transactions over HTTP: plain for their owner, masked for everyone else."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import text

from datp_tasks import Pipeline
from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse

WORD = "zanzibar"
MASK = {"$masked": True}


@pytest.fixture(scope="module", autouse=True)
def steps(kit: Kit) -> None:
    @kit.step("t/seal")
    def seal(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        ctx.progress({"stage": WORD})
        return {"done": data["name"]}

    @kit.step("t/burst", retry={"max_attempts": 1})
    def burst(ctx: Any, data: dict[str, Any]) -> None:
        raise RuntimeError(f"{data['name']} burst")

    kit.use(
        Pipeline("sealed", sealed=True).step("t/seal").build(),
        Pipeline("bursts", sealed=True).step("t/burst").build(),
    )


def submitted(client: httpx.Client, pipeline: str = "sealed") -> str:
    body = {"pipeline": pipeline, "input": {"name": WORD}, "externalId": "one"}
    answer = client.post("/v1/transactions", json=body)
    assert answer.status_code == 202
    return str(answer.json()["txId"])


def test_the_owner_sees_its_own_everywhere(acme: httpx.Client) -> None:
    tx_id = submitted(acme)
    seen = acme.get(f"/v1/transactions/{tx_id}").json()
    assert (seen["input"], seen["output"]) == ({"name": WORD}, {"done": WORD})
    assert seen["progress"] == {"stage": WORD}
    assert acme.get("/v1/transactions").json()["transactions"][0]["output"] == {"done": WORD}
    events = acme.get(f"/v1/transactions/{tx_id}/events").json()["events"]
    assert [each["payload"].get("stage") for each in events] == [WORD, None]
    assert events[-1]["payload"]["output"] == {"done": WORD}
    assert acme.get(f"/v1/transactions/{tx_id}?wait=0.1&after=9").json()["output"] == {"done": WORD}


def test_an_operator_sees_a_mask_in_every_view(acme: httpx.Client, ops: httpx.Client) -> None:
    tx_id = submitted(acme)
    seen = ops.get(f"/v1/transactions/{tx_id}").json()
    assert (seen["input"], seen["output"], seen["progress"]) == (MASK, MASK, MASK)
    views = ("events", "state", "deltas", "logs")
    for path in ("", f"/{tx_id}", *(f"/{tx_id}/{view}" for view in views)):
        answer = ops.get(f"/v1/transactions{path}")
        assert answer.status_code == 200
        assert WORD not in answer.text


def test_to_unmask_needs_a_reason_and_is_written_down(
    kit: Kit, acme: httpx.Client, zeta: httpx.Client, ops: httpx.Client
) -> None:
    tx_id = submitted(acme, "bursts")
    path = f"/v1/transactions/{tx_id}/unmask"
    assert ops.post(path, json={"reason": ""}).status_code == 422
    assert acme.post(path, json={"reason": "mine"}).status_code == 403
    assert zeta.post(path, json={"reason": "curious"}).status_code in (403, 404)
    seen = ops.post(path, json={"reason": "ticket 4711"}).json()
    assert seen["input"] == {"name": WORD}
    assert [WORD in each for each in seen["errors"]] == [True]
    wanted = "SELECT reason FROM operator_action WHERE action = 'transaction.unmask'"
    with kit.connections.engine.connect() as sql:
        assert sql.execute(text(wanted)).scalars().all() == ["ticket 4711"]


def test_another_owner_does_not_learn_of_it(acme: httpx.Client, zeta: httpx.Client) -> None:
    assert zeta.get(f"/v1/transactions/{submitted(acme)}").status_code == 404


def test_without_a_key_ring_sealed_pipelines_are_refused_and_others_are_not(
    kit: Kit, house: ApiHouse
) -> None:
    from dataclasses import replace

    from tests.support.api_house import api_house

    with api_house(kit, replace(kit.settings, keyring="")) as without:
        client = without.client("acme")
        refused = client.post("/v1/transactions", json={"pipeline": "sealed", "input": {}})
        assert refused.status_code == 503
        assert refused.json()["type"] == "urn:datp:problem:sealing-unavailable"
        assert "KEYRING" not in refused.text
        plain = client.post("/v1/transactions", json={"pipeline": "echo", "input": {}})
        assert plain.status_code == 202
