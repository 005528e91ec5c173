"""Finding transactions by what they are about, and inputs that must fit a schema, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict

import httpx
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from datp_tasks import Pipeline
from datp_tasks.api import input_schemas
from datp_tasks.api.lists import make_cursor
from datp_tasks.engine.registry import registry
from datp_tasks.errors import PipelineInvalid
from datp_tasks.model.actor import Role
from datp_tasks.model.search_attributes import text_of
from datp_tasks.record import listing
from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse
from tests.support.remote_terminal import RemoteTerminal

SEARCH = {
    "amount": {"from": "input.amount", "type": "decimal"},
    "payee": {"from": "input.to.name", "type": "string"},
    "booked": {"from": "output.echo.amount", "type": "decimal"},
}
SCHEMA = {
    "type": "object",
    "required": ["amount"],
    "properties": {"amount": {"type": "string"}, "to": {"type": "object"}},
}


@pytest.fixture(scope="module", autouse=True)
def pipelines(kit: Kit) -> None:
    kit.use(Pipeline("found", search=SEARCH).step("t/echo").build())
    kit.use(Pipeline("strict", input_schema=SCHEMA).step("t/echo").build())


def submit(client: httpx.Client, amount: Any, name: str = "ann", **more: Any) -> str:
    given = {"amount": amount, "to": {"name": name}}
    answer = client.post("/v1/transactions", json={"pipeline": "found", "input": given, **more})
    assert answer.status_code == 202, answer.text
    tx_id: str = answer.json()["txId"]
    return tx_id


def listed(client: httpx.Client, **params: Any) -> list[str]:
    """All pages."""
    found: list[str] = []
    while True:
        answer = client.get("/v1/transactions", params=params)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [each["txId"] for each in page["transactions"]]
        if not page["hasMore"]:
            assert page["nextCursor"] is None
            return found
        params = {**params, "cursor": page["nextCursor"]}


def test_transactions_are_found_and_sorted_by_attributes(
    house: ApiHouse, acme: httpx.Client, zeta: httpx.Client
) -> None:
    amounts = ["10", "9.5", "100", "-3", "20.00"]
    ids = {}
    for number, each in enumerate(amounts):
        ids[each] = submit(acme, each, name=f"p{number}")
        house.kit.advance(seconds=1)
    submit(zeta, "50")
    submit(acme, "no number")
    acme.post("/v1/transactions", json={"pipeline": "echo", "input": {"amount": "50"}})
    rising = [ids[each] for each in ("-3", "9.5", "10", "20.00", "100")]
    assert listed(acme, order="amount", limit=2) == rising
    assert listed(acme, order="-amount", limit=1) == rising[::-1]
    assert listed(acme, order="amount", **{"attr.amount[gte]": "10"}) == rising[2:]
    assert listed(acme, order="-booked", **{"attr.booked[lt]": 10}) == rising[1::-1]
    newest = [ids[each] for each in ("20.00", "100", "10")]
    assert listed(acme, **{"attr.amount[gte]": "10"}) == newest
    assert listed(acme, **{"attr.amount[gte]": "10", "attr.amount[lt]": "100"}) == [
        ids["20.00"],
        ids["10"],
    ]
    assert listed(acme, **{"attr.payee": "p2"}) == [ids["100"]]
    assert listed(acme, **{"attr.payee[prefix]": "p", "status": "failed"}) == []
    ops = house.client(house.new_owner("ops"), Role.ADMIN)
    owner = acme.get("/v1/transactions").json()["transactions"][0]["owner"]
    assert listed(ops, order="amount", owner=owner) == rising
    assert set(rising) < set(listed(ops, order="amount"))


def test_a_cursor_with_a_transaction_of_another_owner_tells_nothing_about_it(
    acme: httpx.Client, zeta: httpx.Client
) -> None:
    theirs = submit(zeta, "50")
    mine = [submit(acme, amount) for amount in ("10", "90")]
    place = text_of("decimal", "50")
    for tx_id in (theirs, "t00-none"):
        cursor = make_cursor("amount", place, tx_id)
        assert listed(acme, order="amount", cursor=cursor) == mine[1:]


@pytest.mark.parametrize("name", ["ann", "\u00e4\U0001f4b6\x01" * 60])
def test_a_list_by_an_attribute_goes_on_after_its_last_row_was_erased(
    kit: Kit, acme: httpx.Client, name: str
) -> None:
    ids = [submit(acme, "1", name=name + str(number)) for number in range(3)]
    params: dict[str, Any] = {"order": "payee", "limit": 1}
    first = acme.get("/v1/transactions", params=params).json()
    assert [each["txId"] for each in first["transactions"]] == ids[:1]
    with kit.connections.engine.begin() as sql:
        sql.exec_driver_sql("DELETE FROM tx_attribute WHERE tx_id = %s", (ids[0],))
    assert listed(acme, **params, cursor=first["nextCursor"]) == ids[1:]


def test_metadata_and_times_narrow_a_list(house: ApiHouse, acme: httpx.Client) -> None:
    one = submit(acme, "1", metadata={"shop": "12", "n": 7})
    house.kit.advance(seconds=60)
    two = submit(acme, "2", metadata={"shop": "13"})
    assert listed(acme, **{"metadata.shop": "12"}) == listed(acme, **{"metadata.n": "7"}) == [one]
    ended = acme.get(f"/v1/transactions/{two}").json()["completedAt"]
    assert listed(acme, **{"completedAt[gte]": ended}) == [two]
    assert listed(acme, **{"completedAt[lt]": ended}) == [one]


def test_a_rare_one_in_a_long_list_is_found_page_by_page(
    kit: Kit, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = submit(acme, "1", metadata={"rare": "yes"})
    kit.advance(seconds=1)
    for _ in range(9):
        submit(acme, "2")
    for name, value in (("CHUNK", 2), ("LOOKS_MAX", 4), ("FEW_MAX", 3)):
        monkeypatch.setattr(listing, name, value)
    first = acme.get("/v1/transactions", params={"metadata.rare": "yes"}).json()
    assert (first["transactions"], first["hasMore"]) == ([], True)
    assert listed(acme, **{"metadata.rare": "yes"}) == [rare]
    assert len(listed(acme, **{"attr.amount": "2"})) == 9


def test_who_sees_no_payloads_cannot_ask_for_them(house: ApiHouse, acme: httpx.Client) -> None:
    submit(acme, "1", metadata={"shop": "12"})
    viewer = house.client(house.new_owner("viewer"), Role.VIEWER)
    for params in ({"metadata.shop": "12"}, {"attr.amount": "1"}, {"order": "amount"}):
        assert viewer.get("/v1/transactions", params=params).status_code == 403
    assert viewer.get("/v1/transactions").status_code == 200


def test_a_bulk_action_is_narrowed_by_attributes(house: ApiHouse, acme: httpx.Client) -> None:
    kit = house.kit
    kit.use(Pipeline("resting", search=SEARCH).step("t/nap").build())
    ids = {}
    for amount in ("5", "50", "500"):
        wanted = {"pipeline": "resting", "input": {"amount": amount}}
        ids[amount] = acme.post("/v1/transactions", json=wanted).json()["txId"]
    ops = house.client(house.new_owner("ops"), Role.ADMIN)
    where = {"pipeline": "resting", "attributes": {"amount[gte]": "50", "amount[lt]": "500"}}
    body: dict[str, Any] = {"action": "cancel", "where": where}
    preview = ops.post("/v1/bulk-actions/preview", json=body).json()
    assert [each["txId"] for each in preview["sample"]] == [ids["50"]]
    body |= {"expectedCount": 1, "selection": preview["selection"], "reason": "narrow"}
    assert ops.post("/v1/bulk-actions", json=body).json()["done"] == 1
    statuses = [acme.get(f"/v1/transactions/{each}").json()["status"] for each in ids.values()]
    assert statuses == ["sleeping", "cancelled", "sleeping"]
    body["where"] = {"attributes": {"amount[near]": "1"}}
    wrong = ops.post("/v1/bulk-actions", json=body)
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["pointer"] == "#/body/where/attributes"
    terminal = RemoteTerminal(house.url, house.new_key(house.new_owner("op"), Role.ADMIN))
    rows = terminal.json("list", "--where", "pipeline=resting", "--order", "-amount")
    assert [each["txId"] for each in rows] == [ids["500"], ids["50"], ids["5"]]
    rows = terminal.json("list", "--where", "attr.amount>=100", "--where", "pipeline=resting")
    assert [each["txId"] for each in rows] == [ids["500"]]
    said = terminal("bulk", "cancel", "--where", "attr.amount>=500", "--reason", "over HTTP")
    assert "1 of 1 done" in said


def test_what_is_erased_or_of_another_order_is_not_found(kit: Kit, acme: httpx.Client) -> None:
    for amount in ("1", "2"):
        submit(acme, amount)
    cursor = acme.get("/v1/transactions", params={"limit": 1}).json()["nextCursor"]
    strange = acme.get("/v1/transactions", params={"cursor": cursor, "order": "amount"})
    assert strange.status_code == 422
    with kit.connections.engine.connect() as sql:
        rows = sql.exec_driver_sql("SELECT DISTINCT tx_id FROM tx_attribute").all()
    assert len(rows) > 2


def test_an_input_that_does_not_fit_is_refused_with_each_place(acme: httpx.Client) -> None:
    wrong = {"pipeline": "strict", "input": {"amount": 1, "to": []}, "externalId": "s-1"}
    answer = acme.post("/v1/transactions", json=wrong)
    found = answer.json()
    assert (answer.status_code, found["type"]) == (422, "urn:datp:problem:input-invalid")
    places = sorted(each["pointer"] for each in found["errors"])
    assert places == ["#/body/input/amount", "#/body/input/to"]
    bulk = acme.post("/v1/transactions/bulk", json={"transactions": [wrong]}).json()
    assert bulk["results"][0]["problem"]["errors"] == found["errors"]
    right = {**wrong, "input": {"amount": "1"}}
    assert acme.post("/v1/transactions", json=right).status_code == 202


def test_what_was_accepted_is_found_although_the_schema_is_another_now(
    kit: Kit, acme: httpx.Client
) -> None:
    kit.use(Pipeline("growing").step("t/echo").build())
    wanted = {"pipeline": "growing", "input": {"n": 1}, "externalId": "g-1"}
    first = acme.post("/v1/transactions", json=wanted)
    kit.use(Pipeline("growing", input_schema=SCHEMA).step("t/echo").build())
    again = acme.post("/v1/transactions", json=wanted)
    assert (again.status_code, again.json()["txId"]) == (200, first.json()["txId"])
    other = {**wanted, "externalId": "g-2"}
    assert acme.post("/v1/transactions", json=other).status_code == 422


def test_the_schema_of_a_pipeline_is_published(acme: httpx.Client) -> None:
    found = acme.get("/v1/pipelines/strict/schema").json()
    assert found["inputSchema"]["required"] == ["amount"]
    assert acme.get("/v1/pipelines/echo/schema").json()["inputSchema"]["type"] == "object"
    for name in ("hidden", "nobody-knows"):
        assert acme.get(f"/v1/pipelines/{name}/schema").status_code == 404


class Payee(TypedDict):
    name: str
    iban: NotRequired[str]


class Payment(TypedDict):
    amount: Decimal
    to: Payee
    kind: Literal["instant", "usual"]
    notes: NotRequired[list[str]]
    limit: int | None


DERIVED = {
    "type": "object",
    "required": ["amount", "kind", "limit", "to"],
    "properties": {
        "amount": {"type": "string"},
        "to": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "iban": {"type": "string"}},
        },
        "kind": {"enum": ["instant", "usual"]},
        "notes": {"type": "array", "items": {"type": "string"}},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
}


def test_a_typed_first_step_tells_the_schema_and_an_author_has_it_checked(
    kit: Kit, acme: httpx.Client
) -> None:
    @kit.step("t/typed")
    def typed(ctx: Any, data: Payment) -> dict[str, Any]:
        return {}

    live = kit.connections.live
    about = json.dumps(typed.described())
    live.redis.hset(live.keys.outside("stepTypesH"), "t/typed", about)
    kit.use(Pipeline("typed").step("t/typed").step("t/echo").build())
    found = acme.get("/v1/pipelines/typed/schema").json()
    assert (found["source"], found["checked"]) == ("derived", False)
    assert {name: found["inputSchema"][name] for name in DERIVED} == DERIVED
    # Only published: what the workers of the moment say decides about no payment.
    odd = {"input": {"amount": 1}}
    assert acme.post("/v1/transactions", json={"pipeline": "typed", **odd}).status_code == 202
    kit.use(Pipeline("checked", input_schema=Payment).step("t/typed").build())
    found = acme.get("/v1/pipelines/checked/schema").json()
    assert (found["source"], found["checked"]) == ("written", True)
    refused = acme.post("/v1/transactions", json={"pipeline": "checked", **odd})
    assert refused.json()["type"] == "urn:datp:problem:input-invalid"
    right = {"amount": "1.00", "to": {"name": "bob"}, "kind": "usual", "limit": None}
    fits = {"pipeline": "checked", "input": right}
    assert acme.post("/v1/transactions", json=fits).status_code == 202
    assert acme.get("/v1/pipelines/echo/schema").json()["source"] == "none"


def test_without_redis_the_schema_is_what_is_shipped(
    kit: Kit, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: Any) -> None:
        raise RedisConnectionError("no answer")

    monkeypatch.setattr(input_schemas, "described_step_type", unavailable)
    found = acme.get("/v1/pipelines/found/schema")
    assert (found.status_code, found.json()["source"]) == (200, "none")

    @kit.step("t/shipped")
    def shipped(ctx: Any, data: Payment) -> dict[str, Any]:
        return {}

    kit.use(Pipeline("shipped").step("t/shipped").build())
    monkeypatch.setattr(registry, "find", lambda _: shipped)
    found = acme.get("/v1/pipelines/shipped/schema")
    assert (found.status_code, found.json()["source"]) == (200, "derived")


def test_a_class_that_has_no_json_is_no_schema() -> None:
    @dataclass
    class Socket:
        place: object

    for wrong in (Socket, int):
        with pytest.raises(PipelineInvalid):
            Pipeline("wrong", input_schema=wrong)


def test_hints_that_cannot_be_read_say_nothing(kit: Kit) -> None:
    def postponed(ctx: Any, data: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def untyped(ctx: Any, data: dict[str, Any]) -> None: ...

    functions: list[Callable[..., Any]] = [postponed, untyped, lambda ctx: None]
    for number, function in enumerate(functions):
        assert kit.step(f"t/hints-{number}")(function).input_schema() is None
