"""Transactions over HTTP: hand in, look, act, list; each answer as the document says."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from datp_tasks.client.bulk_transfers import ITEMS_MAX
from tests.support.api_house import ApiHouse
from tests.support.eventually import eventually


def submitted(client: httpx.Client, pipeline: str = "echo", **fields: Any) -> str:
    answer = client.post("/v1/transactions", json={"pipeline": pipeline, "input": {}, **fields})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["txId"])


def shown(client: httpx.Client, tx_id: str) -> dict[str, Any]:
    answer = client.get(f"/v1/transactions/{tx_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_transaction_is_accepted_run_and_shown(acme: httpx.Client) -> None:
    wanted = {"pipeline": "echo", "input": {"amount": "1.10"}, "metadata": {"who": "ann"}}
    answer = acme.post("/v1/transactions", json=wanted)
    assert answer.status_code == 202
    tx_id = answer.json()["txId"]
    assert answer.headers["location"] == f"/v1/transactions/{tx_id}"
    assert answer.headers["cache-control"] == "no-store"
    found = shown(acme, tx_id)
    assert found["status"] == "success"
    assert found["output"] == {"echo": {"amount": "1.10"}}
    assert (found["metadata"], found["sequence"]) == ({"who": "ann"}, 1)


def test_the_same_external_id_is_the_same_transaction_or_a_conflict(acme: httpx.Client) -> None:
    wanted = {"pipeline": "echo", "input": {"a": 1}, "externalId": "order-1"}
    first = acme.post("/v1/transactions", json=wanted)
    again = acme.post("/v1/transactions", json=wanted)
    other = acme.post("/v1/transactions", json={**wanted, "input": {"a": 2}})
    assert (first.status_code, again.status_code, other.status_code) == (202, 200, 409)
    assert first.json()["txId"] == again.json()["txId"]
    assert again.headers["location"] == first.headers["location"]
    assert other.headers["content-type"] == "application/problem+json"
    assert other.json()["type"] == "urn:datp:problem:external-id-conflict"
    assert first.json()["txId"] in other.json()["detail"]


@pytest.mark.parametrize("change", [{"webhook": "https://example.com/a"}, {"metadata": {"b": 1}}])
def test_what_else_is_asked_for_makes_another_request(
    acme: httpx.Client, change: dict[str, Any]
) -> None:
    wanted = {"pipeline": "echo", "input": {}, "externalId": "order-2"}
    assert acme.post("/v1/transactions", json=wanted).status_code == 202
    assert acme.post("/v1/transactions", json={**wanted, **change}).status_code == 409


def test_an_external_id_stays_used_when_redis_has_forgotten_everything(
    house: ApiHouse, acme: httpx.Client
) -> None:
    wanted = {"pipeline": "echo", "input": {}, "externalId": "order-3"}
    first = acme.post("/v1/transactions", json=wanted).json()
    redis = house.kit.connections.redis
    for key in redis.scan_iter(match=f"{house.kit.settings.key_prefix}:*", count=1_000):
        redis.delete(key)
    house.kit.connections.pipelines.refresh_all()
    again = acme.post("/v1/transactions", json=wanted)
    assert (again.status_code, again.json()) == (200, {**first, "status": "success"})
    assert acme.post("/v1/transactions", json={**wanted, "input": {"x": 1}}).status_code == 409


def test_two_owners_may_use_the_same_external_id(acme: httpx.Client, zeta: httpx.Client) -> None:
    assert submitted(acme, externalId="same") != submitted(zeta, externalId="same")


def test_many_are_handed_in_at_once_and_each_has_its_own_answer(acme: httpx.Client) -> None:
    items = [
        {"pipeline": "echo", "input": {"n": 1}, "externalId": "b-1"},
        {"pipeline": "echo", "input": {"n": 1}, "externalId": "b-1"},
        {"pipeline": "echo", "input": {"n": 2}, "externalId": "b-1"},
        {"pipeline": "nobody-knows", "input": {}},
        {"pipeline": "echo"},
        {"pipeline": "hidden", "input": {}},
        17,
        {"pipeline": "echo", "input": {"n": 3}},
    ]
    answer = acme.post("/v1/transactions/bulk", json={"transactions": items})
    assert answer.status_code == 207, answer.text
    found = answer.json()
    assert [each["index"] for each in found["results"]] == list(range(8))
    names = [each["externalId"] for each in found["results"]]
    assert names == ["b-1"] * 3 + [None] * 5
    assert [each["status"] for each in found["results"]] == [202, 200, 409, 422, 422, 422, 422, 202]
    assert (found["accepted"], found["repeated"], found["refused"]) == (2, 1, 5)
    assert found["results"][0]["txId"] == found["results"][1]["txId"]
    kinds = [each.get("problem", {}).get("type", "").split(":")[-1] for each in found["results"]]
    assert kinds[2:7] == [
        "external-id-conflict",
        "pipeline-unknown",
        "request-invalid",
        "pipeline-not-startable",
        "request-invalid",
    ]
    assert shown(acme, found["results"][7]["txId"])["output"] == {"echo": {"n": 3}}


def test_a_bulk_has_a_limit(acme: httpx.Client) -> None:
    limit = ITEMS_MAX
    items = [{"pipeline": "echo", "input": {}}] * (limit + 1)
    answer = acme.post("/v1/transactions/bulk", json={"transactions": items})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (
        422,
        "#/body/transactions",
    )
    assert acme.get("/v1/transactions").json()["transactions"] == []


def test_a_switch_wakes_a_transaction(acme: httpx.Client) -> None:
    tx_id = submitted(acme, "nap")
    asleep = shown(acme, tx_id)
    assert (asleep["status"], asleep["progress"]) == ("sleeping", {"waits": True})
    answer = acme.put(f"/v1/transactions/{tx_id}/switches/go", json={"value": "now"})
    assert (answer.status_code, answer.json()) == (200, {"woken": True})
    assert shown(acme, tx_id)["output"] == {"went": "now"}
    late = acme.put(f"/v1/transactions/{tx_id}/switches/go", json={"value": 1})
    assert (late.status_code, late.json()["type"]) == (409, "urn:datp:problem:transaction-final")


def test_a_transaction_is_woken_and_cancelled(acme: httpx.Client) -> None:
    tx_id = submitted(acme, "nap")
    assert acme.post(f"/v1/transactions/{tx_id}/wake").json() == {"woken": True}
    answer = acme.post(f"/v1/transactions/{tx_id}/cancel", json={"reason": "changed my mind"})
    assert answer.status_code == 200
    found = shown(acme, tx_id)
    assert (found["status"], found["note"]) == ("cancelled", "changed my mind")
    assert acme.post(f"/v1/transactions/{tx_id}/cancel").status_code == 409
    assert acme.post(f"/v1/transactions/{tx_id}/wake").status_code == 409


def test_events_are_numbered_without_a_gap_and_the_end_is_the_last(acme: httpx.Client) -> None:
    tx_id = submitted(acme, "nap")
    acme.post(f"/v1/transactions/{tx_id}/wake")
    acme.put(f"/v1/transactions/{tx_id}/switches/go", json={"value": True})
    found = acme.get(f"/v1/transactions/{tx_id}/events").json()["events"]
    assert [each["sequence"] for each in found] == list(range(1, len(found) + 1))
    assert [each["kind"] for each in found][-1] == "final"
    assert {each["kind"] for each in found[:-1]} == {"progress"}
    assert shown(acme, tx_id)["sequence"] == len(found)


def test_an_expiry_is_shown_and_a_past_one_refused(acme: httpx.Client) -> None:
    tx_id = submitted(acme, "nap", expiresInSeconds=60)
    assert shown(acme, tx_id)["expiresAt"] is not None
    past = {"pipeline": "nap", "input": {}, "expiresAt": "2020-01-01T00:00:00Z"}
    answer = acme.post("/v1/transactions", json=past)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:datp:problem:expiry-invalid")


def test_transactions_are_listed_page_by_page_the_newest_first(
    house: ApiHouse, acme: httpx.Client
) -> None:
    made = []
    for _ in range(5):
        house.kit.advance(seconds=1)
        made.append(submitted(acme))
    pages = []
    cursor: str | None = None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        found = acme.get("/v1/transactions", params=params).json()
        pages.append([each["txId"] for each in found["transactions"]])
        cursor = found["nextCursor"]
        if cursor is None:
            break
    assert [each for page in pages for each in page] == made[::-1]


def test_a_list_can_be_narrowed(house: ApiHouse, acme: httpx.Client) -> None:
    done = submitted(acme, externalId="x-1")
    house.kit.advance(seconds=10)
    asleep = submitted(acme, "nap")
    moment = shown(acme, asleep)["createdAt"]

    def ids(**params: Any) -> list[str]:
        answer = acme.get("/v1/transactions", params=params)
        assert answer.status_code == 200, answer.text
        return [each["txId"] for each in answer.json()["transactions"]]

    since, before = {"createdAt[gte]": moment}, {"createdAt[lt]": moment}
    assert ids(status="sleeping") == ids(pipeline="nap") == ids(**since) == [asleep]
    assert ids(status="success") == ids(externalId="x-1") == ids(**before) == [done]
    assert ids(status="success,sleeping") == ids(pipeline="nap,echo") == [asleep, done]
    assert ids(q=done[-12:-2].upper()) == ids(q="X-1") == [done]
    assert ids(order="createdAt") == [done, asleep]
    assert ids(status="running") == ids(externalId="x-2") == []
    assert ids(externalId="x-1", status="failed") == []
    # PostgreSQL itself has no such zone.
    assert ids(**{"createdAt[lt]": "0840-06-16T16:23:49+18:09"}) == []


@pytest.mark.parametrize(
    "params",
    [
        {"cursor": "garbage"},
        {"cursor": "WzEsMl0"},
        {"status": "nearly"},
        {"createdAt[gte]": "yesterday"},
        {"createdAt[gte]": "2026-01-01T00:00:00"},
        {"createdAt[gte]": "0001-01-01T00:00:00+23:00"},
        {"limit": 0},
        {"limit": 201},
        {"attr.n[near]": 1},
        {"attr.N": 1},
        {"order": "a b"},
        {"status": "success,"},
        {"unknown": 1},
        {"pipeline": ["echo", "nap"]},
    ],
)
def test_a_strange_question_is_refused(acme: httpx.Client, params: dict[str, Any]) -> None:
    answer = acme.get("/v1/transactions", params=params)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:datp:problem:request-invalid")


def test_seeing_the_end_is_written_down(acme: httpx.Client) -> None:
    tx_id = submitted(acme)
    assert shown(acme, tx_id)["notifiedAt"] is None
    eventually(lambda: shown(acme, tx_id)["notifiedAt"] is not None)


def test_accepts_that_arrive_together_share_a_commit(house: ApiHouse) -> None:
    async def storm() -> list[int]:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=house.url, headers=headers, timeout=30) as client:
            wanted = {"pipeline": "echo", "input": {}}
            posts = [client.post("/v1/transactions", json=wanted) for _ in range(80)]
            return [answer.status_code for answer in await asyncio.gather(*posts)]

    key = house.new_key("storm")
    before = house.services.shared.accepts.batches
    assert asyncio.run(storm()) == [202] * 80
    assert house.services.shared.accepts.batches - before < 40
