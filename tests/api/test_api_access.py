"""Keys, owners and limits: who gets in, what is seen of others, how much is allowed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from datp_tasks.clock import VirtualClock
from datp_tasks.errors import KeyInvalid, KeyUnknown, SettingsError
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.api_keys import ApiKeys, KeyHash, OwnerLimits
from datp_tasks.testing import Kit
from tests.api.test_access_table import ROUTES
from tests.support.api_house import PEPPER, ApiHouse, api_house
from tests.support.eventually import eventually

TX = "t07-0197d3a1c5b27b1f8e0c2d4f6a8b9c0d"


def called(path: str) -> str:
    """The path of a route with something where it has a name."""
    return re.sub(r"\{(\w+)[^}]*\}", lambda name: TX if name[1] == "txId" else "1", path)


def calls(*, of_clients: bool) -> list[tuple[str, str, Any]]:
    """How each route that needs a key is called; the table has all of them."""
    return [
        (*called(route).split(" ", 1), body)
        for route, (body, allowed) in ROUTES.items()
        if not isinstance(allowed, str) and bool({"client", "granted"} & allowed) == of_clients
    ]


CLIENT_ROUTES = calls(of_clients=True)
OPERATOR_ROUTES = calls(of_clients=False)


@pytest.mark.parametrize(("method", "path", "body"), CLIENT_ROUTES + OPERATOR_ROUTES)
def test_nothing_is_done_or_told_without_a_key(
    house: ApiHouse, method: str, path: str, body: Any
) -> None:
    answer = house.client().request(method, path, json=body)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(("method", "path", "body"), OPERATOR_ROUTES)
def test_the_routes_of_operators_need_their_scope(
    acme: httpx.Client, method: str, path: str, body: Any
) -> None:
    answer = acme.request(method, path, json=body)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:datp:problem:forbidden")


def wrong_keys(house: ApiHouse) -> Iterator[str]:
    right = house.new_key("acme")
    flipped = "A" if right[-10] != "A" else "B"
    yield right[:-10] + flipped + right[-9:]
    yield right[:-1]
    yield right + "x"
    yield f"datp_{'0' * 16}_{right.split('_', 2)[2]}"
    yield house.new_key("acme").rpartition("_")[0] + "_" + right.split("_", 2)[2]
    yield right.upper()
    yield "datp__"
    yield "x" * 10_000
    yield "' OR 1=1 --"
    expired = house.new_key("acme", expires_in_s=-1)
    yield expired


def test_a_wrong_key_is_refused_whatever_is_wrong_with_it(house: ApiHouse) -> None:
    answers = []
    for key in wrong_keys(house):
        answer = house.client(key=key).get("/v1/transactions")
        answers.append((answer.status_code, "traceback" in answer.text.lower()))
    assert set(answers) == {(401, False)}
    basic = house.client().get("/v1/transactions", headers={"Authorization": "Basic abc"})
    assert basic.status_code == 401


def test_a_revoked_key_is_refused_within_seconds(house: ApiHouse) -> None:
    key = house.new_key("acme")
    client = house.client(key=key)
    assert client.get("/v1/transactions").status_code == 200
    key_id = key.split("_")[1]
    assert house.keys.revoke(key_id, actor=Actor(name="ann"), reason="lost")
    eventually(lambda: client.get("/v1/transactions").status_code == 401, within_s=5)
    assert not house.keys.revoke(key_id, actor=Actor(name="ann"))
    with pytest.raises(KeyUnknown):
        house.keys.revoke("no-such-key", actor=Actor(name="ann"))


def test_a_key_is_stored_as_a_hash_that_the_pepper_makes(house: ApiHouse, kit: Kit) -> None:
    key = house.new_key("canary")
    with kit.connections.engine.connect() as sql:
        rows = sql.execute(text("SELECT to_jsonb(k)::text FROM api_key k")).scalars().all()
        audit = sql.execute(text("SELECT to_jsonb(a)::text FROM operator_action a")).scalars().all()
    secret = key.split("_", 2)[2]
    assert not [row for row in (*rows, *audit) if secret in row]
    others = ApiKeys(kit.connections.engine, VirtualClock(), PEPPER + "!")
    assert others.verify(key) is None
    assert house.keys.verify(key) is not None
    assert len(secret) == 43 + 8 and len({house.new_key("x") for _ in range(50)}) == 50


def test_what_is_done_with_keys_is_written_down(house: ApiHouse, kit: Kit) -> None:
    made = house.keys.create("audited", Role.ADMIN, actor=Actor(name="ann"), name="ci").key
    house.keys.revoke(made.id, actor=Actor(name="bob"), reason="leaked")
    with kit.connections.engine.connect() as sql:
        rows = sql.execute(
            text(
                "SELECT actor, action, reason FROM operator_action WHERE subject = :id ORDER BY id"
            ),
            {"id": made.id},
        ).all()
    assert [tuple(row) for row in rows] == [
        ("ann", "key.create", None),
        ("bob", "key.revoke", "leaked"),
    ]


@pytest.mark.parametrize("owner", ["", "a b", "x" * 65, "-a", "a\n", "ä"])
def test_an_owner_that_cannot_be_gets_no_key(house: ApiHouse, owner: str) -> None:
    with pytest.raises(KeyInvalid):
        house.keys.create(owner, actor=Actor(name="ann"))


def test_without_a_good_pepper_there_is_no_api(kit: Kit) -> None:
    for pepper in ("", "short"):
        with pytest.raises(SettingsError, match="DATP_KEY_PEPPER") as refused:
            KeyHash(pepper)
        assert "short" not in str(refused.value)


def without_id(answer: httpx.Response) -> dict[str, Any]:
    return {name: each for name, each in answer.json().items() if name != "requestId"}


def test_an_owner_sees_nothing_of_another(
    acme: httpx.Client, zeta: httpx.Client, ops: httpx.Client
) -> None:
    wanted = {"pipeline": "nap", "input": {}, "externalId": "mine"}
    tx_id = acme.post("/v1/transactions", json=wanted).json()["txId"]
    calls = [
        ("GET", f"/v1/transactions/{tx_id}", None),
        ("GET", f"/v1/transactions/{tx_id}?wait=5", None),
        ("GET", f"/v1/transactions/{tx_id}/events", None),
        ("POST", f"/v1/transactions/{tx_id}/cancel", None),
        ("POST", f"/v1/transactions/{tx_id}/wake", None),
        ("PUT", f"/v1/transactions/{tx_id}/switches/go", {"value": 1}),
        ("GET", f"/datp/1.0/tx/status/{tx_id}", None),
        ("GET", f"/datp/1.0/tx/status/{tx_id}?reply=longpoll", None),
        ("GET", "/datp/1.0/tx/statusByExternalId/mine", None),
    ]
    unknown = zeta.get(f"/v1/transactions/{TX}")
    began_s = time.monotonic()
    for method, path, body in calls:
        answer = zeta.request(method, path, json=body)
        assert answer.status_code == 404, path
        assert without_id(answer) == without_id(unknown), path
    assert time.monotonic() - began_s < 4, "a foreign long poll waits"
    listed = zeta.get("/v1/transactions", params={"externalId": "mine"}).json()
    assert listed["transactions"] == zeta.get("/v1/transactions").json()["transactions"] == []
    acme.get(f"/v1/transactions/{tx_id}")
    # That the owner has seen it is written down after it was answered.
    eventually(lambda: acme.get(f"/v1/transactions/{tx_id}").json()["notifiedAt"] is not None)
    theirs = acme.get(f"/v1/transactions/{tx_id}").json()
    assert theirs["status"] == "sleeping"
    for_owner = {"owner": theirs["owner"]}
    assert zeta.get("/v1/transactions", params=for_owner).json()["transactions"] == []
    seen = ops.get(f"/v1/transactions/{tx_id}").json()
    assert {name: seen[name] for name in theirs} == theirs
    assert seen["submittedBy"].startswith("key ") and seen["origin"].endswith(" 127.0.0.1")
    assert ops.get("/v1/transactions", params=for_owner).json()["transactions"] == [seen]
    assert seen in ops.get("/v1/transactions").json()["transactions"]


def test_an_owner_that_asks_too_often_is_told_when_to_come_back(house: ApiHouse) -> None:
    owner = house.new_owner("eager")
    limits = OwnerLimits(requests_per_s=2, burst_max=5)
    house.keys.set_limits(owner, limits, actor=Actor(name="ann"))
    client = house.client(owner)
    answers = [client.get("/v1/transactions") for _ in range(8)]
    assert [each.status_code for each in answers] == [200] * 5 + [429] * 3
    assert answers[-1].json()["type"] == "urn:datp:problem:limited"
    assert int(answers[-1].headers["retry-after"]) >= 1
    # The kit's clock stands still, so there are new tokens only when it is moved.
    house.kit.clock.advance(seconds=1)
    eventually(lambda: client.get("/v1/transactions").status_code == 200, within_s=5)


def test_a_bulk_counts_as_many_requests(house: ApiHouse) -> None:
    owner = house.new_owner("bulky")
    house.keys.set_limits(
        owner, OwnerLimits(requests_per_s=1, burst_max=5), actor=Actor(name="ann")
    )
    client = house.client(owner)
    items = [{"pipeline": "echo", "input": {}}] * 20
    assert client.post("/v1/transactions/bulk", json={"transactions": items}).status_code == 202
    refused = client.get("/v1/transactions")
    # Twenty of five is a debt of fifteen.
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "16")


def test_an_owner_has_only_so_many_in_flight(house: ApiHouse) -> None:
    owner = house.new_owner("busy")
    house.keys.set_limits(owner, OwnerLimits(in_flight_max=3), actor=Actor(name="ann"))
    client = house.client(owner)
    wanted = {"pipeline": "nap", "input": {}}
    answers = [client.post("/v1/transactions", json=wanted) for _ in range(5)]
    assert [each.status_code for each in answers] == [202] * 3 + [429] * 2
    assert int(answers[-1].headers["retry-after"]) >= 1
    bulk = {"transactions": [wanted] * 2}
    assert client.post("/v1/transactions/bulk", json=bulk).status_code == 429
    client.post(f"/v1/transactions/{answers[0].json()['txId']}/cancel")
    eventually(lambda: client.post("/v1/transactions", json=wanted).status_code == 202, within_s=5)
    assert client.post("/v1/transactions", json=wanted).status_code == 429


def test_limits_are_shared_by_processes(house: ApiHouse, kit: Kit) -> None:
    owner = house.new_owner("shared")
    house.keys.set_limits(
        owner, OwnerLimits(requests_per_s=1, burst_max=6), actor=Actor(name="ann")
    )
    with api_house(kit) as second:
        clients = [each.client(owner) for each in (house, second)]
        codes = [clients[n % 2].get("/v1/transactions").status_code for n in range(10)]
    assert sorted(codes) == [200] * 6 + [429] * 4
