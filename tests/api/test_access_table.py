"""Who may do what: every route and every command, for every role and kind of key.

A route or a command without a row here fails the test: decide first who may use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from datp_tasks import Pipeline
from datp_tasks.api.application import ROUTERS
from datp_tasks.cli.command_roles import needed
from datp_tasks.cli.families import FAMILIES
from datp_tasks.cli.lazy import commands_of
from datp_tasks.model.actor import Role
from datp_tasks.model.grants import Grants
from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse

#: Keys of the owner of the transaction: without grants, and with some.
OF_OWNER: dict[str, tuple[str, ...] | None] = {
    "client": None,
    "reader": ("read",),
    "submitter": ("submit:*",),
    "granted": ("read", "cancel", "wake", "switch:*", "batch:*"),
}
ROLES = tuple(Role)
EVERYONE = {*OF_OWNER, *ROLES}
VIEWERS = {Role.VIEWER, Role.OPERATOR, Role.APPROVER, Role.ADMIN}
OPERATORS = VIEWERS - {Role.VIEWER}
APPROVERS = {Role.APPROVER, Role.ADMIN}
ADMINS = {Role.ADMIN}
READERS = {"client", "reader", "granted", *VIEWERS}

WANTED = {"pipeline": "echo", "input": {}}
DECISION = {"decision": "redo", "reason": "table"}

#: Route → body, and who is not refused. `open` needs no key at all.
ROUTES: dict[str, tuple[Any, set[Any] | str]] = {
    "POST /v1/transactions": (WANTED, {"client", "submitter", *ADMINS}),
    "POST /v1/transactions/bulk": ({"transactions": [WANTED]}, EVERYONE),
    "POST /v1/bulk-transfers": (
        {"pipeline": "echo", "expiresInSeconds": 9, "transfers": [WANTED]},
        {"client", "submitter", *ADMINS},
    ),
    "GET /v1/bulk-transfers/{txId}": (None, READERS),
    "POST /v1/bulk-transfers/{txId}/cancel": (
        {"reason": "a test"},
        {"client", "granted", *OPERATORS},
    ),
    "GET /v1/transactions": (None, READERS),
    "GET /v1/transactions/{txId}": (None, READERS),
    "GET /v1/transactions/{txId}/events": (None, READERS),
    "POST /v1/transactions/{txId}/cancel": ({}, {"client", "granted", *OPERATORS}),
    "POST /v1/transactions/{txId}/wake": (None, {"granted", *OPERATORS}),
    "PUT /v1/transactions/{txId}/switches/{name}": ({"value": 1}, {"granted", *OPERATORS}),
    "GET /v1/transactions/{txId}/state": (None, OPERATORS),
    "GET /v1/transactions/{txId}/deltas": (None, OPERATORS),
    "GET /v1/transactions/{txId}/logs": (None, OPERATORS),
    "POST /v1/transactions/{txId}/resolve": (DECISION, OPERATORS),
    "POST /v1/transactions/{txId}/retry": ({"reason": "table"}, OPERATORS),
    "POST /v1/transactions/{txId}/unmask": ({"reason": "table"}, ADMINS),
    "GET /v1/pipelines/{name}/schema": (None, EVERYONE),
    "GET /v1/in-doubt": (None, VIEWERS),
    "POST /v1/batches": ({"service": "books", "payload": "AA=="}, {"granted", *ADMINS}),
    "GET /v1/batches": (None, {"granted", *VIEWERS}),
    "GET /v1/batches/{service}/{batchId}": (None, {"granted", *VIEWERS}),
    "GET /v1/batches/{service}/{batchId}/receipts": (None, {"granted", *VIEWERS}),
    "GET /v1/services": (None, VIEWERS),
    "POST /v1/services": ({"service": "books", "kind": "none", "url": "x"}, ADMINS),
    "GET /v1/claims": (None, VIEWERS),
    **{
        f"POST /v1/batches/{{service}}/{{batchId}}/{act}": ({"reason": "table"}, OPERATORS)
        for act in ("park", "resume", "resubmit")
    },
    "POST /v1/batches/{service}/{batchId}/resolve": (
        {"reason": "table", "state": "INVALID"},
        OPERATORS,
    ),
    "GET /v1/webhooks": (None, READERS),
    "GET /v1/events": (None, READERS),
    "GET /v1/webhook-endpoints": (None, READERS),
    "POST /v1/webhook-endpoints": ({"url": "https://a.example/"}, {"client", *ADMINS}),
    "GET /v1/webhook-endpoints/{id}": (None, READERS),
    "PATCH /v1/webhook-endpoints/{id}": ({}, {"client", *ADMINS}),
    "DELETE /v1/webhook-endpoints/{id}": (None, {"client", *ADMINS}),
    "POST /v1/webhook-endpoints/{id}/rotate-secret": ({}, {"client", *ADMINS}),
    "POST /v1/webhook-endpoints/{id}/test": (None, {"client", *ADMINS}),
    "POST /v1/webhook-endpoints/{id}/replay": (
        {"from": "2027-01-31T12:00:00Z", "to": "2027-01-31T13:00:00Z"},
        {"client", *ADMINS},
    ),
    "GET /v1/webhook-endpoints/{id}/deliveries": (None, READERS),
    "GET /v1/webhooks/{id}": (None, READERS),
    "GET /v1/webhook-secret": (None, {"client", *ADMINS}),
    "POST /v1/webhook-secret/rotate": (None, {"client", *ADMINS}),
    "POST /v1/webhooks/{id}/redeliver": (None, READERS - {Role.VIEWER}),
    "GET /v1/pipelines": (None, VIEWERS),
    "GET /v1/pipelines/{name}": (None, VIEWERS),
    "POST /v1/pipelines/{name}/versions/{version}/use": (None, ADMINS),
    "POST /v1/pipelines/{name}/disable": (None, ADMINS),
    "POST /v1/pipelines/check": ({"definition": {}}, VIEWERS),
    "POST /v1/pipelines": ({"definition": {}}, ADMINS),
    "POST /v1/pipelines/import": ({}, ADMINS),
    "GET /v1/pipelines/{name}/versions/{version}": (None, VIEWERS),
    "POST /v1/pipelines/{name}/versions/{version}/commit": ({"comment": "table"}, ADMINS),
    "POST /v1/pipelines/{name}/versions/{version}/test": ({"cases": 1}, ADMINS),
    "GET /v1/pipelines/{name}/versions/{version}/export": (None, VIEWERS),
    "GET /v1/pipelines/{name}/diff": (None, VIEWERS),
    "POST /v1/pipelines/{name}/clone": ({"name": "other"}, ADMINS),
    "DELETE /v1/pipelines/{name}/versions/{version}": (None, ADMINS),
    "GET /v1/keys": (None, READERS),
    "POST /v1/keys": ({}, ADMINS),
    "POST /v1/keys/{keyId}/revoke": (None, ADMINS),
    "GET /v1/owners/{owner}/limits": (None, VIEWERS),
    "PUT /v1/owners/{owner}/limits": ({"burstMax": 0}, ADMINS),
    "GET /v1/retention-rules": (None, VIEWERS),
    "PUT /v1/retention-rules/{kind}/{name}": ({"days": 0, "reason": "table"}, ADMINS),
    "DELETE /v1/retention-rules/{kind}/{name}": (None, ADMINS),
    "POST /v1/audits": ({"sample": 0}, OPERATORS),
    "GET /v1/audits": (None, OPERATORS),
    "GET /v1/audits/{number}": (None, OPERATORS),
    "POST /v1/erasures/preview": ({}, ADMINS),
    "POST /v1/erasures": ({}, ADMINS),
    "GET /v1/erasures": (None, ADMINS),
    "GET /v1/erasures/{number}": (None, ADMINS),
    "GET /v1/secrets": (None, ADMINS),
    "PUT /v1/secrets/{name}": ({"value": ""}, ADMINS),
    "DELETE /v1/secrets/{name}": (None, ADMINS),
    "GET /v1/key-ring": (None, ADMINS),
    "GET /v1/groups": (None, VIEWERS),
    "GET /v1/groups/{name}": (None, VIEWERS),
    "PATCH /v1/groups/{name}": ({}, OPERATORS),
    "POST /v1/bulk-actions/preview": ({"action": "wake", "where": {}}, OPERATORS),
    "POST /v1/bulk-actions": ({}, OPERATORS),
    "GET /v1/transactions/{txId}/why": (None, VIEWERS),
    "GET /v1/transactions/{txId}/replay": (None, OPERATORS),
    "GET /v1/doctor": (None, VIEWERS),
    "GET /v1/in-flight": (None, VIEWERS),
    "GET /v1/timeouts": (None, VIEWERS),
    "GET /v1/mappings": (None, VIEWERS),
    "POST /v1/mappings": ({"definition": {}}, ADMINS),
    "GET /v1/mappings/{name}": (None, VIEWERS),
    "GET /v1/mappings/{name}/versions/{version}": (None, VIEWERS),
    "POST /v1/mappings/{name}/versions/{version}/commit": ({"comment": "table"}, ADMINS),
    "POST /v1/mappings/{name}/versions/{version}/use": (None, ADMINS),
    "GET /v1/step-types": (None, VIEWERS),
    "GET /v1/step-types/{name:path}": (None, VIEWERS),
    "GET /v1/nodes": (None, VIEWERS),
    "GET /v1/queues": (None, VIEWERS),
    "GET /v1/alerts": (None, VIEWERS),
    "POST /v1/alerts/{alertId}/close": ({"reason": "table"}, OPERATORS),
    "GET /v1/approvals": (None, VIEWERS),
    "GET /v1/approvals/{number}": (None, VIEWERS),
    "POST /v1/approvals/{number}/approve": ({}, APPROVERS),
    "POST /v1/approvals/{number}/reject": ({"note": "table"}, APPROVERS),
    "GET /v1/audit/actions": (None, OPERATORS),
    "GET /v1/metrics": (None, VIEWERS),
    "PUT /datp/1.0/tx/start/{transactionType}": ({}, {"client", "submitter", *ADMINS}),
    "GET /datp/1.0/tx/status/{txId}": (None, READERS),
    "GET /datp/1.0/tx/statusByExternalId/{externalId}": (None, READERS),
    "GET /datp/1.0/ping": (None, "open"),
    "GET /datp/1.0/healthcheck": (None, "open"),
    "GET /healthz": (None, "open"),
    "GET /readyz": (None, "open"),
    "GET /metrics": (None, VIEWERS),
    "GET /": (None, "open"),
}
NO_ROLE, VIEWER, OPERATOR, ADMIN = None, Role.VIEWER, Role.OPERATOR, Role.ADMIN
APPROVER = Role.APPROVER
#: Command → the least role that may use it, with a key; None: it asks for none.
COMMANDS: dict[str, Role | None] = {
    **dict.fromkeys(("up", "demo", "env", "api", "ledger-sim"), NO_ROLE),
    **dict.fromkeys(("submit", "why", "list", "alerts", "doctor", "timeouts", "top"), VIEWER),
    "bulk-transfers submit": VIEWER,
    **dict.fromkeys(("bulk-transfers show", "bulk-transfers cancel"), OPERATOR),
    **dict.fromkeys(("nodes", "groups list", "groups show", "claims", "services list"), VIEWER),
    **dict.fromkeys(("pipelines list", "pipelines show", "pipelines export"), VIEWER),
    **dict.fromkeys(("pipelines diff", "batches list", "batches show"), VIEWER),
    **dict.fromkeys(("steps list", "steps show"), VIEWER),
    **dict.fromkeys(("status", "watch", "switch", "cancel", "wake", "retry"), OPERATOR),
    **dict.fromkeys(("bulk cancel", "bulk wake", "bulk retry", "resolve"), OPERATOR),
    **dict.fromkeys(("clear-alert", "replay", "audit", "audit actions", "logs"), OPERATOR),
    **dict.fromkeys(("webhooks list", "webhooks show", "webhooks redeliver"), OPERATOR),
    **dict.fromkeys(("endpoints list", "endpoints show"), VIEWER),
    **dict.fromkeys(("endpoints add", "endpoints set", "endpoints delete"), ADMIN),
    **dict.fromkeys(("endpoints rotate", "endpoints test", "endpoints replay"), ADMIN),
    **dict.fromkeys(("groups set", "batches park", "batches resume"), OPERATOR),
    **dict.fromkeys(("batches resubmit", "batches resolve"), OPERATOR),
    **dict.fromkeys(("approvals list", "approvals show"), VIEWER),
    **dict.fromkeys(("approvals approve", "approvals reject"), APPROVER),
    **dict.fromkeys(("migrate", "services add", "db rights", "erase", "timeouts generate"), ADMIN),
    "retention list": VIEWER,
    **dict.fromkeys(("retention set", "retention remove"), ADMIN),
    **dict.fromkeys(("pipelines apply", "pipelines commit", "pipelines use"), ADMIN),
    **dict.fromkeys(("pipelines disable", "pipelines import"), ADMIN),
    **dict.fromkeys(("pipelines clone", "pipelines delete", "mappings apply"), ADMIN),
    **dict.fromkeys(("mappings commit", "mappings use"), ADMIN),
    **dict.fromkeys(("pipelines test", "mappings list", "mappings show"), VIEWER),
    **dict.fromkeys(("webhooks secrets show", "webhooks secrets rotate"), ADMIN),
    **dict.fromkeys(("unmask", "keyring make", "keyring add", "keyring activate"), ADMIN),
    **dict.fromkeys(("keyring drop", "keyring list", "keyring rotate"), ADMIN),
    **dict.fromkeys(("secrets set", "secrets rotate", "secrets list", "secrets delete"), ADMIN),
    **dict.fromkeys(("keys create", "keys list", "keys revoke", "keys limit"), ADMIN),
}


def routes() -> set[str]:
    return {
        f"{method} {route.path}"  # type: ignore[attr-defined]
        for router in ROUTERS
        for route in router.routes
        for method in route.methods  # type: ignore[attr-defined]
    }


def commands() -> Iterator[str]:
    def walk(path: str, command: Any) -> Iterator[str]:
        inner = getattr(command, "commands", None)
        if inner is None or command.invoke_without_command:
            yield path
        for name, each in (inner or {}).items():
            yield from walk(f"{path} {name}", each)

    for family in FAMILIES:
        for name, command in commands_of(family).items():
            yield from walk(name, command)


def test_every_route_has_a_row() -> None:
    assert routes() == set(ROUTES)


def test_every_command_has_a_row_and_asks_for_that_role() -> None:
    assert {path: needed(path) for path in commands()} == COMMANDS


@pytest.fixture(scope="module")
def callers(house: ApiHouse) -> dict[Any, httpx.Client]:
    made: dict[Any, httpx.Client] = {
        name: house.client(
            key=house.new_key("table", grants=None if given is None else Grants.parse(given))
        )
        for name, given in OF_OWNER.items()
    }
    return made | {role: house.client("staff", role) for role in ROLES}


@pytest.fixture(scope="module")
def path_values(house: ApiHouse) -> dict[str, str]:
    """A transaction of the owner that has ended, in a pipeline that says nothing of access."""
    made = house.kit.client.submit("echo", {}, owner="table", external_id="table-1")
    values = {"txId": made.tx_id, "externalId": "table-1", "transactionType": "echo"}
    return {
        **values,
        "name": "go",
        "service": "books",
        "batchId": "none",
        "id": "none",
        "version": "none",
        "number": "999999999",
        "alertId": "999999999",
        "keyId": "none",
        "kind": "owner",
        "owner": "table",
    }


@pytest.mark.parametrize("route", sorted(ROUTES))
def test_a_route_refuses_whom_the_table_does_not_name(
    route: str, house: ApiHouse, callers: dict[Any, httpx.Client], path_values: dict[str, str]
) -> None:
    method, _, path = route.partition(" ")
    body, allowed = ROUTES[route]
    # No pipeline of that name: what is let in changes nothing.
    values = path_values | ({"name": "none"} if "/pipelines/" in path else {})
    url = path.replace(":path", "").format(**values)
    without = house.client().request(method, url, json=body)
    if allowed == "open":
        assert without.status_code == 200
        return
    assert without.status_code == 401
    found = {
        name
        for name, client in callers.items()
        if client.request(method, url, json=body).status_code not in (401, 403)
    }
    assert found == allowed


def test_a_bulk_refuses_each_item_that_the_key_may_not_start(
    callers: dict[Any, httpx.Client],
) -> None:
    body = {"transactions": [WANTED, {"pipeline": "guarded", "input": {}}]}
    found = {
        name: [
            each["status"]
            for each in client.post("/v1/transactions/bulk", json=body).json()["results"]
        ]
        for name, client in callers.items()
    }
    assert found == {
        "client": [202, 403],
        "submitter": [202, 202],
        "reader": [403, 403],
        "granted": [403, 403],
        Role.VIEWER: [403, 403],
        Role.OPERATOR: [403, 403],
        Role.APPROVER: [403, 403],
        Role.ADMIN: [202, 202],
    }


def test_a_pipeline_keeps_a_switch_for_operators_whatever_a_key_was_granted(
    house: ApiHouse, callers: dict[Any, httpx.Client]
) -> None:
    tx_id = house.kit.client.submit("guarded", {}, owner="table").tx_id
    url = f"/v1/transactions/{tx_id}/switches/kyc"
    answers = {
        name: client.put(url, json={"value": "approved"}).status_code
        for name, client in callers.items()
    }
    assert {name for name, status in answers.items() if status == 200} == OPERATORS
    assert set(answers.values()) == {200, 403}


def test_a_viewer_sees_no_payload(callers: dict[Any, httpx.Client], kit: Kit) -> None:
    tx_id = kit.client.submit("echo", {"iban": "DE00"}, owner="table").tx_id
    url = f"/v1/transactions/{tx_id}"
    assert callers[Role.OPERATOR].get(url).json()["input"] == {"iban": "DE00"}
    shown = callers[Role.VIEWER].get(url)
    assert (shown.status_code, shown.json()["input"]) == (200, {"$masked": True})
    assert "DE00" not in callers[Role.VIEWER].get("/v1/transactions?owner=table").text
    assert "DE00" not in callers[Role.VIEWER].get(f"/datp/1.0/tx/status/{tx_id}").text


def test_a_viewer_is_not_told_what_an_exception_said(
    callers: dict[Any, httpx.Client], kit: Kit
) -> None:
    @kit.step("t/break", retry={"max_attempts": 1})
    def broken(ctx: Any, data: dict[str, Any]) -> None:
        raise RuntimeError("the account DE00 is closed")

    kit.use(Pipeline("breaks").step("t/break").build())
    url = f"/v1/transactions/{kit.client.submit('breaks', {}, owner='table').tx_id}/why"
    assert "DE00" in callers[Role.OPERATOR].get(url).json()["answer"]
    told = callers[Role.VIEWER].get(url).json()["answer"]
    assert "DE00" not in told and "RuntimeError (error " in told


def test_the_request_id_is_answered_and_kept_with_key_and_address(
    house: ApiHouse, callers: dict[Any, httpx.Client], kit: Kit
) -> None:
    owner = house.new_owner("asks")
    key = house.new_key(owner)
    client, key_id = house.client(key=key), key.split("_")[1]
    sent = {"Request-Id": "mine-1"}
    made = client.post("/v1/transactions", json={"pipeline": "nap", "input": {}}, headers=sent)
    assert made.headers["request-id"] == "mine-1"
    url = f"/v1/transactions/{made.json()['txId']}"
    shown = callers[Role.OPERATOR].get(url).json()
    assert (shown["submittedBy"], shown["origin"]) == (f"key {key_id}", "mine-1 127.0.0.1")
    garbled = client.post(f"{url}/cancel", headers={"Request-Id": "a b"})
    assert garbled.headers["request-id"].startswith("req_")
    found = (
        callers[Role.OPERATOR]
        .get("/v1/audit/actions", params={"subject": made.json()["txId"]})
        .json()["actions"]
    )
    assert [(each["action"], each["keyId"] == key_id) for each in found] == [
        ("transaction.cancel", True),
        ("transaction.read", False),
    ]
    assert found[0]["requestId"] == garbled.headers["request-id"]
    assert {each["address"] for each in found} == {"127.0.0.1"}
