"""A grant is for what is its key's owner's, and for what it names; not for what lies beside it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from datp_tasks.errors import NotGranted
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.grants import Grants
from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse


def granted(house: ApiHouse, owner: str, *grants: str, role: Role | None = None) -> httpx.Client:
    return house.client(key=house.new_key(owner, role, grants=Grants.parse(grants)))


def asleep(house: ApiHouse, owner: str) -> str:
    sent = {"pipeline": "nap", "input": {"iban": "DE00"}}
    made = house.client(owner).post("/v1/transactions", json=sent)
    return f"/v1/transactions/{made.json()['txId']}"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/cancel", {}),
        ("POST", "/wake", None),
        ("PUT", "/switches/go", {"value": 1}),
    ],
)
def test_the_grants_beside_a_viewers_role_do_not_reach_other_owners(
    house: ApiHouse, method: str, path: str, body: Any
) -> None:
    viewer = house.new_owner("viewer")
    key = granted(house, viewer, "cancel", "wake", "switch:*", role=Role.VIEWER)
    url = asleep(house, house.new_owner("victim"))
    assert key.get(url).status_code == 200
    assert key.request(method, url + path, json=body).status_code == 403
    own = asleep(house, viewer)
    assert key.request(method, own + path, json=body).status_code == 200


def test_who_may_cancel_and_not_read_gets_no_payload_for_an_answer(house: ApiHouse) -> None:
    owner = house.new_owner("taker")
    url = asleep(house, owner)
    key = granted(house, owner, "cancel")
    assert key.get(url).status_code == 403
    answer = key.post(f"{url}/cancel", json={})
    assert (answer.status_code, answer.json()["input"]) == (200, {"$masked": True})
    assert "DE00" not in answer.text


def test_who_may_start_and_not_read_gets_no_output_for_an_answer(house: ApiHouse) -> None:
    key = granted(house, house.new_owner("starter"), "submit:*")
    sent = {"metadata": {"externalId": "s-1", "poll": "long"}, "data": {"iban": "DE00"}}
    answer = key.put("/datp/1.0/tx/start/echo", json=sent)
    assert answer.status_code == 200 and "DE00" not in answer.text


def test_batches_of_other_services_are_not_listed(house: ApiHouse) -> None:
    owner = house.new_owner("books")
    one, every = granted(house, owner, "batch:books"), granted(house, owner, "batch:*")
    assert one.get("/v1/batches", params={"service": "books"}).status_code == 200
    assert one.get("/v1/batches", params={"service": "other"}).status_code == 403
    assert one.get("/v1/batches").status_code == 403
    assert every.get("/v1/batches").status_code == 200


def test_a_key_starts_nothing_in_the_name_of_another_owner(kit: Kit) -> None:
    grants = Grants.parse(["submit:*"])
    viewer = Actor(name="key v", owner="v", role=Role.VIEWER, grants=grants)
    with pytest.raises(NotGranted, match="another owner"):
        kit.client.submit("echo", {}, owner="victim", by=viewer)
    assert kit.client.submit("echo", {}, owner="v", by=viewer).tx_id
    admin = Actor(name="key a", owner="a", role=Role.ADMIN)
    assert kit.client.submit("echo", {}, owner="victim", by=admin).tx_id
