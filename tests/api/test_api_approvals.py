"""Four eyes over HTTP: 202 with the number of the request, and other people decide."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from datp_tasks import Pipeline, StepContext
from datp_tasks.errors import ApprovalNeeded
from datp_tasks.http import ApiError
from datp_tasks.model.actor import Actor, Role
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.api_house import PEPPER, ApiHouse, api_house
from tests.support.remote_terminal import RemoteTerminal, no_servers


@pytest.fixture(scope="module")
def kit(datp_servers: Servers) -> Iterator[Kit]:
    made = Kit(datp_servers, key_pepper=PEPPER, key_cache_s=0.2, policy_file="")
    yield made
    made.close()


@pytest.fixture
def ann(house: ApiHouse) -> httpx.Client:
    return house.client("ann", Role.ADMIN)


@pytest.fixture
def bob(house: ApiHouse) -> httpx.Client:
    return house.client("bob", Role.APPROVER)


def ask(kit: Kit, client: httpx.Client, name: str) -> tuple[str, str]:
    """A version that waits to be put into use; where its approval is, and the version."""
    definition = Pipeline(name).step("util/fixed-reply", params={"output": {}}).build()
    kit.connections.pipelines.apply(definition)
    answer = client.post(f"/v1/pipelines/{name}/versions/{definition.version}/use", json={})
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == answer.json()["href"]
    return str(answer.json()["href"]), definition.version


def in_use(kit: Kit, name: str) -> str | None:
    return {each.name: each.version_in_use for each in kit.connections.pipelines.list()}[name]


def test_another_person_makes_it_happen(kit: Kit, ann: httpx.Client, bob: httpx.Client) -> None:
    place, version = ask(kit, ann, "one")
    assert in_use(kit, "one") is None
    shown = bob.get(place).json()
    assert (shown["state"], shown["requestedBy"], shown["params"]) == (
        *("pending", "ann", {"version": version}),
    )
    listed = bob.get("/v1/approvals", params={"state": "pending"}).json()["approvals"]
    assert shown["id"] in [each["id"] for each in listed]
    answer = bob.post(f"{place}/approve", json={"note": "read it"})
    assert (answer.status_code, answer.json()["state"]) == (200, "executed")
    assert in_use(kit, "one") == version
    # A repeated request gets the same answer; another word does not.
    assert bob.post(f"{place}/approve", json={}).json()["state"] == "executed"
    assert bob.post(f"{place}/reject", json={"note": "no"}).status_code == 409


def test_a_decision_that_waits_for_another_person_is_answered_alike_under_its_key(
    house: ApiHouse, kit: Kit, ann: httpx.Client, bob: httpx.Client
) -> None:
    @kit.step("t/doubtful", on_crash="review")
    def doubtful(ctx: StepContext, data: dict[str, object]) -> dict[str, object]:
        return data

    made = Pipeline("doubtful").step("t/doubtful").build()
    kit.connections.pipelines.apply(made)
    use = ann.post(f"/v1/pipelines/doubtful/versions/{made.version}/use", json={})
    approved = bob.post(f"{use.json()['href']}/approve", json={"note": "read it"})
    assert approved.json()["state"] == "executed"
    kit.crash_at("hop.after_step")
    client = house.client(house.new_owner("acme"))
    wanted = {"pipeline": "doubtful", "input": {}}
    tx_id = client.post("/v1/transactions", json=wanted).json()["txId"]
    kit.recover()
    place = f"/v1/transactions/{tx_id}/resolve"
    decided = {"decision": "done", "reason": "seen", "output": {"iban": "DE4711"}}
    key = {"Idempotency-Key": "decide"}
    first = ann.post(place, json=decided, headers=key)
    assert (first.status_code, "approval" in first.json()) == (202, True)
    again = ann.post(place, json=decided, headers=key)
    assert (again.headers["Idempotent-Replayed"], again.json()) == ("true", first.json())
    assert again.headers["Location"] == first.headers["Location"]
    # What another person agrees to may hold payloads: the answer is made again, and not kept.
    agreed = [bob.post(f"{first.json()['href']}/approve", json={}, headers=key) for _ in range(2)]
    assert ["DE4711" in each.text for each in agreed] == [True, True]
    assert [each.json()["state"] for each in agreed] == ["executed", "executed"]
    with kit.connections.engine.connect() as sql:
        kept = sql.exec_driver_sql("SELECT body FROM idempotency_key").scalars().all()
    assert kept and "DE4711" not in str(kept)


def test_an_erasure_that_was_approved_begins_under_the_same_key(
    kit: Kit, ann: httpx.Client, bob: httpx.Client
) -> None:
    order = {"owner": "forgotten", "reason": "request 7"}
    key = {"Idempotency-Key": "forget"}
    asked = ann.post("/v1/erasures", json=order, headers=key)
    assert asked.status_code == 202 and "approval" in asked.json()
    assert ann.post("/v1/erasures", json=order, headers=key).json() == asked.json()
    approved = bob.post(f"{asked.json()['href']}/approve", json={"note": "read it"})
    assert approved.json()["state"] == "approved"
    begun = [ann.post("/v1/erasures", json=order, headers=key) for _ in range(2)]
    assert [each.json().get("state") for each in begun] == ["running"] * 2
    assert begun[0].json()["approval"] == asked.json()["approval"]
    assert begun[1].headers["Idempotent-Replayed"] == "true"
    kit.run_job("operator_runs")


def test_the_requester_and_those_without_the_role_may_not_decide(
    house: ApiHouse, kit: Kit, ann: httpx.Client
) -> None:
    place, _ = ask(kit, ann, "two")
    other_key_of_ann = house.client("ann", Role.APPROVER)
    for client in (ann, other_key_of_ann, house.client("dan", Role.OPERATOR)):
        assert client.post(f"{place}/approve", json={}).status_code == 403
        assert client.post(f"{place}/reject", json={"note": "x"}).status_code == 403
    stranger = house.client("acme")
    for answer in (
        *(stranger.get(place), stranger.get("/v1/approvals")),
        stranger.post(f"{place}/approve", json={}),
    ):
        assert answer.status_code == 403
    assert in_use(kit, "two") is None


def test_a_rejected_one_is_over_and_a_moved_one_is_a_conflict(
    kit: Kit, ann: httpx.Client, bob: httpx.Client
) -> None:
    place, version = ask(kit, ann, "three")
    assert bob.post(f"{place}/reject", json={}).status_code == 422
    assert bob.post(f"{place}/reject", json={"note": "no"}).json()["state"] == "rejected"
    assert bob.post(f"{place}/approve", json={}).status_code == 409
    place, version = ask(kit, ann, "three")
    kit.connections.pipelines.disable("three")
    answer = bob.post(f"{place}/approve", json={})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:datp:problem:subject-moved")
    assert bob.get(place).json()["state"] == "stale"
    assert bob.get("/v1/approvals/999999").status_code == 404
    assert version != in_use(kit, "three")


def test_two_api_processes_that_approve_at_once_execute_once(
    house: ApiHouse, kit: Kit, ann: httpx.Client
) -> None:
    place, version = ask(kit, ann, "four")
    with api_house(kit.another()) as second:
        clients = [house.client("bob", Role.APPROVER), second.client("cleo", Role.APPROVER)]
        with ThreadPoolExecutor(2) as threads:
            answers = list(
                threads.map(lambda client: client.post(f"{place}/approve", json={}), clients)
            )
    assert sorted(each.status_code for each in answers) == [200, 409]
    assert in_use(kit, "four") == version
    with kit.connections.engine.connect() as connection:
        query = "SELECT count(*) FROM operator_action WHERE action = 'pipeline.use'"
        found = connection.exec_driver_sql(f"{query} AND subject = 'four'").scalar_one()
    assert found == 1


def test_an_alert_of_broken_glass_is_closed_over_http_by_another_person(
    house: ApiHouse, kit: Kit, ann: httpx.Client, bob: httpx.Client
) -> None:
    definition = Pipeline("alone").step("util/fixed-reply", params={"output": {}}).build()
    kit.connections.pipelines.apply(definition)
    actor = Actor(name="key of ann", role=Role.ADMIN, owner="ann")
    store = house.services.pipelines.acting(actor)
    store.use("alone", definition.version, reason="night", break_glass=True)
    [alert] = [
        each
        for each in ann.get("/v1/alerts").json()["alerts"]
        if each["kind"] == "break-glass" and "alone" in each["summary"]
    ]
    close = f"/v1/alerts/{alert['id']}/close"
    assert ann.post(close, json={"reason": "fine"}).status_code == 403
    assert bob.post(close, json={"reason": " "}).status_code == 422
    assert bob.post(close, json={"reason": "looked"}).json() == {"id": alert["id"], "closed": True}
    assert bob.post(close, json={"reason": "looked"}).status_code == 404
    assert alert["id"] not in [each["id"] for each in bob.get("/v1/alerts").json()["alerts"]]
    subject = f"break-glass {alert['subject']}"
    kept = bob.get("/v1/audit/actions", params={"subject": subject}).json()["actions"]
    assert [(each["action"], each["reason"]) for each in kept] == [("clear-alert", "looked")]
    assert kept[0]["keyId"] and kept[0]["requestId"]


def test_two_people_decide_at_terminals_over_http(
    kit: Kit, house: ApiHouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    definition = Pipeline("far").step("util/fixed-reply", params={"output": {}}).build()
    kit.connections.pipelines.apply(definition)
    ann = RemoteTerminal(house.url, house.new_key("ann", Role.ADMIN))
    bob = RemoteTerminal(house.url, house.new_key("bob", Role.APPROVER))
    with no_servers(monkeypatch, tmp_path):
        with pytest.raises(ApprovalNeeded) as needed:
            ann("pipelines", "use", "far", definition.version, "--reason", "it is better")
        number = str(needed.value.approval_id)
        assert number in bob("approvals", "list")
        assert "it is better" in bob("approvals", "show", number)
        assert in_use(kit, "far") is None
        with pytest.raises(ApiError):
            ann("approvals", "approve", number)
        assert "executed" in bob("approvals", "approve", number, "--note", "read it")
    assert in_use(kit, "far") == definition.version
