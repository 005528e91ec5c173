"""Webhook endpoints over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
from sqlalchemy import text

from datp_tasks.model.grants import Grants
from datp_tasks.record.audit_chain import AuditChain
from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse

PLACE = "/v1/webhook-endpoints"
WANTED: dict[str, Any] = {
    "url": "https://shop.example.com/hooks",
    "types": ["transaction.completed"],
}


def test_register_look_change_and_delete(acme: httpx.Client, zeta: httpx.Client) -> None:
    made = acme.post(PLACE, json=WANTED | {"description": "books"})
    assert made.status_code == 201
    endpoint = made.json()
    assert endpoint["secret"].startswith("whsec_")
    place = f"{PLACE}/{endpoint['id']}"
    assert made.headers["location"] == place
    shown = {name: value for name, value in endpoint.items() if name != "secret"}
    assert acme.get(place).json() == shown
    end = {"nextCursor": None, "hasMore": False, "limit": 200}
    assert acme.get(PLACE).json() == {"endpoints": [shown], **end}
    changed = acme.patch(place, json={"types": [], "enabled": False}).json()
    assert (changed["types"], changed["enabled"], changed["url"]) == ([], False, shown["url"])
    # Another owner does not even learn that there is one.
    for call in (zeta.get, zeta.delete):
        assert call(place).status_code == 404
    assert zeta.patch(place, json={}).status_code == 404
    assert zeta.get(PLACE).json() == {"endpoints": [], **end}
    assert acme.delete(place).status_code == 204
    assert acme.get(place).status_code == 404


def test_secret_test_event_deliveries_and_replay(kit: Kit, acme: httpx.Client) -> None:
    place = f"{PLACE}/{acme.post(PLACE, json=WANTED).json()['id']}"
    first = acme.post(f"{place}/rotate-secret", json={"overlapSeconds": 60}).json()["secret"]
    assert acme.post(f"{place}/rotate-secret").json()["secret"] != first
    sent = acme.post(f"{place}/test")
    assert sent.status_code == 202
    actions = AuditChain(kit.connections.engine).actions(subject=place.rpartition("/")[2])
    assert [each.action for each in actions] == ["webhook-endpoint.test", "webhook-endpoint.add"]
    [delivery] = acme.get(f"{place}/deliveries").json()["webhooks"]
    assert (delivery["id"], delivery["kind"]) == (sent.json()["delivery"], "test")
    assert (delivery["sequence"], delivery["endpointId"] in place) == (None, True)
    assert acme.get(sent.headers["location"]).json()["id"] == delivery["id"]
    times = {"from": "2027-01-31T12:00:00Z", "to": "2027-01-31T13:00:00Z"}
    assert acme.post(f"{place}/replay", json=times).json()["replay"]["to"].startswith("2027-01-31")
    assert acme.post(f"{place}/replay", json=times).status_code == 409
    wrong = {"from": times["to"], "to": times["from"]}
    assert acme.post(f"{place}/replay", json=wrong).status_code == 422


def test_an_event_reaches_the_queue_of_webhooks(kit: Kit, acme: httpx.Client) -> None:
    place = f"{PLACE}/{acme.post(PLACE, json=WANTED).json()['id']}"
    acme.post("/v1/transactions", json={"pipeline": "echo", "input": {}})
    kit.connections.webhooks.endpoints.feed(endpoints_max=100, rows_max=100)
    [delivery] = acme.get(f"{place}/deliveries").json()["webhooks"]
    assert (delivery["kind"], delivery["state"]) == ("event", "pending")
    acme.delete(place)


def test_what_is_not_acceptable_is_a_problem(acme: httpx.Client) -> None:
    for wrong in (
        {"url": "ftp://example.com"},
        {"url": "https://127.0.0.1.nip.io:22/"},
        WANTED | {"types": ["transaction.paid"]},
        WANTED | {"description": "x" * 501},
        WANTED | {"other": 1},
        {},
    ):
        refused = acme.post(PLACE, json=wrong)
        assert refused.status_code == 422, wrong
        assert refused.headers["content-type"] == "application/problem+json"


def test_a_key_with_grants_needs_the_one_for_endpoints(house: ApiHouse) -> None:
    owner = house.new_owner("acme")
    able = house.client(key=house.new_key(owner, grants=Grants.parse(["read", "endpoints"])))
    made = able.post(PLACE, json=WANTED)
    assert made.status_code == 201
    unable = house.client(key=house.new_key(owner, grants=Grants.parse(["read"])))
    refused = unable.post(PLACE, json=WANTED)
    assert (refused.status_code, "endpoints" in refused.json()["detail"]) == (403, True)
    assert unable.get(f"{PLACE}/{made.json()['id']}").status_code == 200


def test_no_secret_is_kept_with_an_idempotency_key(kit: Kit, acme: httpx.Client) -> None:
    made = acme.post(PLACE, json=WANTED, headers={"Idempotency-Key": "made"}).json()
    place = f"{PLACE}/{made['id']}/rotate-secret"
    rotated = acme.post(place, headers={"Idempotency-Key": "rotated"}).json()
    with kit.connections.engine.connect() as sql:
        kept = [str(row) for row in sql.execute(text("SELECT * FROM idempotency_key"))]
    assert len(kept) >= 2
    for secret in (made["secret"], rotated["secret"]):
        assert not any(secret in row for row in kept)
    again = acme.post(place, headers={"Idempotency-Key": "rotated"})
    assert again.json()["type"].endswith("idempotency-answer-gone")
