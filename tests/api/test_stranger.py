"""A tenant that tries everything against what another one has: refused, and no trace is left."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from datp_tasks import Pipeline
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.approval import Ask, Need
from datp_tasks.model.grants import Grants
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit
from tests.api.test_access_table import ROUTES
from tests.support.api_house import ApiHouse
from tests.support.ledger_world import payload_of

SERVICE = "shared-line"
SECRET = "zanzibar"
#: Everything that a client's key can be granted.
ALL = ("read", "cancel", "wake", "switch:*", "submit:*", "batch:*", "endpoints")


@dataclass(frozen=True)
class Victim:
    """An owner with one of everything, and how its things are named in URLs."""

    owner: str
    client: httpx.Client
    batch: dict[str, str]
    names: dict[str, str]
    endpoint: str
    bulk: str

    @property
    def tx_id(self) -> str:
        return self.names["txId"]

    def url(self, path: str) -> str:
        """Of one of its own things, of the kind that the route is about."""
        own = {}
        if "/pipelines/" in path:
            # Of a pipeline there is no owner: those who run the system have all of them.
            own = {"name": "nap"}
        elif "/webhook-endpoints/" in path:
            own = {"id": self.endpoint}
        elif "/bulk-transfers/" in path:
            own = {"txId": self.bulk}
        return path.replace(":path", "").format(**self.names | own)


@pytest.fixture(scope="module")
def victim(house: ApiHouse, kit: Kit) -> Victim:
    owner = house.new_owner("victim")
    key = house.new_key(owner, grants=Grants.parse(ALL))
    client = house.client(key=key)
    wanted = {
        "pipeline": "nap",
        "input": {"word": SECRET},
        "externalId": "v-1",
        "webhook": "https://receiver.example/hook",
        "progressReports": True,
    }
    tx_id = client.post("/v1/transactions", json=wanted).json()["txId"]
    endpoint = client.post("/v1/webhook-endpoints", json={"url": "https://receiver.example/ep"})
    assert endpoint.status_code == 201, endpoint.text
    kit.use(Pipeline("bulk").step("util/bulk-transfer").build())
    transfer = {"pipeline": "nap", "input": {"word": SECRET}}
    bulk = client.post(
        "/v1/bulk-transfers",
        json={"pipeline": "bulk", "expiresInSeconds": 600, "transfers": [transfer]},
    )
    assert bulk.status_code == 202, bulk.text
    kit.client.add_service(SERVICE, kind="sawtooth", url="http://127.0.0.1:9")
    batch = {
        "service": SERVICE,
        "payload": base64.b64encode(payload_of("ef" * 64, word=SECRET)).decode(),
    }
    kit.lose_bells()
    try:
        made = client.post("/v1/batches", json=batch)
    finally:
        kit.lose_bells(False)
    assert made.status_code == 202, made.text
    [delivery] = client.get("/v1/webhooks", params={"txId": tx_id}).json()["webhooks"]
    alerts = Alerts(kit.connections.engine, kit.connections.clock)
    alerts.raise_alert("test", tx_id, f"{owner}: {SECRET}")
    names = {
        "txId": tx_id,
        "externalId": "v-1",
        "id": delivery["id"],
        "service": SERVICE,
        "batchId": made.json()["batchId"],
        "number": str(approval_about(kit, tx_id)),
        "alertId": str(next(each.id for each in alerts.open_alerts() if each.subject == tx_id)),
        "keyId": key.split("_")[1],
        "owner": owner,
        "name": "go",
        "kind": "owner",
        "version": "none",
    }
    return Victim(owner, client, batch, names, endpoint.json()["id"], bulk.json()["bulkId"])


def approval_about(kit: Kit, tx_id: str) -> int:
    ask = Ask(
        action="resolve.done",
        subject=tx_id,
        params={"output": {"word": SECRET}},
        version="1",
        reason=SECRET,
    )
    need = Need(approvals=1, role=Role.APPROVER, persons=(), expires_s=3_600)
    store = kit.operator.approvals.store
    with store.writing() as connection:
        return store.ask(connection, Actor(name="ann", role=Role.OPERATOR), ask, need)[0]


@pytest.fixture
def stranger(house: ApiHouse) -> httpx.Client:
    """Another owner, whose key has every grant that a client's key can have."""
    return house.client(key=house.new_key(house.new_owner("stranger"), grants=Grants.parse(ALL)))


def test_another_owner_reaches_nothing_and_leaves_no_trace(
    kit: Kit, victim: Victim, stranger: httpx.Client
) -> None:
    before = trace_of(kit, victim)
    assert all(before.values()), [table for table, rows in before.items() if not rows]
    for route, (body, allowed) in sorted(ROUTES.items()):
        method, _, path = route.partition(" ")
        if allowed == "open" or "{" not in path or "/start/" in path or "/schema" in path:
            continue
        answer = stranger.request(method, victim.url(path), json=body)
        assert answer.status_code in (403, 404), (route, answer.text)
        assert SECRET not in answer.text and victim.owner not in answer.text, route
    assert trace_of(kit, victim) == before


def test_lists_and_repeated_ids_tell_another_owner_nothing(
    kit: Kit, victim: Victim, stranger: httpx.Client
) -> None:
    before = trace_of(kit, victim)
    for path, params in (
        ("/v1/transactions", {"owner": victim.owner}),
        ("/v1/transactions", {"externalId": "v-1"}),
        ("/v1/webhooks", {"txId": victim.tx_id}),
        ("/v1/batches", {"service": SERVICE, "withFinal": "true"}),
        ("/v1/webhook-endpoints", {}),
        ("/v1/events", {}),
    ):
        answer = stranger.get(path, params=params)
        [listed] = [each for each in answer.json().values() if isinstance(each, list)]
        assert (answer.status_code, listed) == (200, []), answer.text
    assert stranger.get("/v1/events", params={"owner": victim.owner}).status_code == 403
    # A cursor is a place and no right: from there on it sees its own.
    place = victim.client.get("/v1/events", params={"limit": 1}).json()["nextCursor"]
    assert stranger.get("/v1/events", params={"after": place}).json()["events"] == []
    keys = stranger.get("/v1/keys")
    assert victim.owner not in keys.text and victim.names["keyId"] not in keys.text
    # The same external id is another transaction; the same batch in a shared line is refused.
    wanted = {"pipeline": "nap", "input": {}, "externalId": "v-1"}
    made = stranger.post("/v1/transactions", json=wanted)
    assert (made.status_code, made.json()["txId"] != victim.tx_id) == (202, True)
    taken = stranger.post("/v1/batches", json=victim.batch)
    assert taken.status_code == 409 and victim.owner not in taken.text, taken.text
    assert trace_of(kit, victim) == before


def test_the_owner_itself_reaches_all_of_it(victim: Victim) -> None:
    """Else the walk above would be refused for another reason."""
    for path in (
        "/v1/transactions/{txId}",
        "/v1/transactions/{txId}/events",
        "/v1/bulk-transfers/{txId}",
        "/v1/webhooks/{id}",
        "/v1/webhook-endpoints/{id}",
        "/v1/batches/{service}/{batchId}",
    ):
        answer = victim.client.get(victim.url(path))
        assert answer.status_code == 200, answer.text


def trace_of(kit: Kit, victim: Victim) -> dict[str, list[Any]]:
    """Every row that says something of the owner or of its transaction."""
    tables = {
        "tx_summary": "owner = :owner",
        "tx_state_change": "tx_id = :tx",
        "tx_event": "tx_id = :tx",
        "webhook_delivery": "owner = :owner",
        "webhook_endpoint": "owner = :owner",
        "ledger_batch": "owner = :owner",
        "api_key": "owner = :owner",
        "approval": "subject = :tx",
        "alert": "subject = :tx",
    }
    none_before = {"tx_signal": "tx_id = :tx", "operator_action": "subject = :tx"}
    found = {}
    with kit.connections.engine.connect() as sql:
        for table, where in (tables | none_before).items():
            # When a key was used last is its owner's own doing.
            columns = "to_jsonb(t) - 'last_used_at'" if table == "api_key" else "to_jsonb(t)"
            rows = sql.execute(
                text(f"SELECT ({columns})::text FROM {table} t WHERE {where} ORDER BY 1"),
                {"owner": victim.owner, "tx": victim.tx_id},
            )
            found[table] = list(rows.scalars()) or (["none"] if table in none_before else [])
    return found
