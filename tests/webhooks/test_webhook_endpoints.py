"""Webhook endpoints: each event once, to the endpoints of its owner that want it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from datp_tasks import failpoints
from datp_tasks.errors import (
    NoKeyRing,
    WebhookBusy,
    WebhookInvalid,
    WebhookUnknown,
)
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.audit_chain import AuditChain
from datp_tasks.record.events import EventStore
from datp_tasks.record.webhook_endpoints import (
    ENDPOINT_GONE,
    Endpoint,
    Endpoints,
    Query,
    signer_of,
)
from datp_tasks.runtime.jobs import alerts_of
from datp_tasks.testing import Kit
from datp_tasks.webhooks import endpoint_service
from datp_tasks.webhooks.endpoint_service import EndpointService
from datp_tasks.webhooks.signing import signed_headers
from tests.support.receiver import Receiver, answers
from tests.webhooks.conftest import NewKit

COMPLETED = "transaction.completed"


def service(kit: Kit) -> EndpointService:
    return kit.connections.webhooks.endpoints


def register(kit: Kit, receiver: Receiver, path: str = "/ep", **options: Any) -> Endpoint:
    owner = options.pop("owner", "acme")
    return service(kit).add(owner, receiver.url(path), **options)[0]


def pay(kit: Kit, amount: int = 5, **options: Any) -> str:
    return kit.submit("pay", {"amount": amount}, **{"owner": "acme", **options})


def rows(kit: Kit) -> list[tuple[Any, ...]]:
    with kit.connections.engine.connect() as sql:
        query = "SELECT endpoint_id, event_id, state FROM webhook_delivery ORDER BY created_at, id"
        return [tuple(row) for row in sql.execute(text(query))]


def test_an_endpoint_is_told_of_each_event_that_it_chose(kit: Kit, receiver: Receiver) -> None:
    register(kit, receiver, "/all")
    register(kit, receiver, "/ends", types=[COMPLETED])
    register(kit, receiver, "/zeta", owner="zeta")
    tx_id = pay(kit)
    kit.advance(seconds=2)
    # In which order they arrive is not promised.
    told = sorted(got.json["type"] for got in receiver.at("/all"))
    assert told == ["transaction.accepted", COMPLETED]
    [got] = receiver.at("/ends")
    assert got.json["type"] == COMPLETED
    assert (got.data["txId"], got.data["output"]) == (tx_id, {"paid": 5})
    assert got.json["id"].startswith("evt_")
    assert receiver.at("/zeta") == []


def test_the_url_of_a_transaction_is_told_as_before(kit: Kit, receiver: Receiver) -> None:
    register(kit, receiver, "/ep", types=[COMPLETED])
    pay(kit, webhook=receiver.url("/own"))
    kit.advance(seconds=2)
    assert len(receiver.at("/own")) == len(receiver.at("/ep")) == 1
    [own], [endpoint] = receiver.at("/own"), receiver.at("/ep")
    assert own.data == endpoint.data
    assert own.id != endpoint.id


def test_what_happened_before_it_was_registered_is_not_told(kit: Kit, receiver: Receiver) -> None:
    pay(kit)
    register(kit, receiver)
    kit.advance(seconds=2)
    assert receiver.at("/ep") == []


def test_a_poll_that_cancels_a_webhook_leaves_endpoints_alone(kit: Kit, receiver: Receiver) -> None:
    register(kit, receiver, types=[COMPLETED])
    tx_id = pay(kit, webhook=receiver.url("/own"), cancel_webhook_on_poll=True)
    service(kit).feed(endpoints_max=10, rows_max=10)
    assert EventStore(kit.connections.engine, kit.clock).mark_notified(tx_id, 9, True) == 1
    kit.advance(seconds=2)
    assert (receiver.at("/own"), len(receiver.at("/ep"))) == ([], 1)


@pytest.mark.parametrize("point", ["endpoints.before_commit", "endpoints.after_commit"])
def test_a_crash_leaves_each_event_one_delivery(kit: Kit, receiver: Receiver, point: str) -> None:
    endpoint = register(kit, receiver, types=[COMPLETED])
    pay(kit)
    failpoints.arm(point, "crash")
    with pytest.raises(SimulatedCrash):
        service(kit).feed(endpoints_max=10, rows_max=10)
    failpoints.disarm_all()
    kit.advance(seconds=10)
    kit.advance(seconds=10)
    assert len(receiver.at("/ep")) == 1
    assert [(row[0], row[2]) for row in rows(kit)] == [(endpoint.id, "delivered")]


def test_two_feeders_at_once_make_each_delivery_once(kit: Kit, receiver: Receiver) -> None:
    endpoint = register(kit, receiver)
    for _ in range(5):
        pay(kit)
    other = kit.another()
    with service(kit).store.feeding(endpoint.id):
        assert service(other).feed(endpoints_max=10, rows_max=3).deliveries == 0
    other.close()
    fed = [service(kit).feed(endpoints_max=10, rows_max=3).deliveries for _ in range(5)]
    assert fed == [3, 3, 3, 1, 0]
    assert service(kit).store.due(10) == []
    assert len({row[1] for row in rows(kit)}) == 10


def test_owners_without_endpoints_have_no_rows(kit: Kit) -> None:
    pay(kit)
    assert service(kit).store.due(10) == []
    kit.advance(seconds=2)
    assert rows(kit) == []


# Secrets.


def signed_by(got: Any, secret: str) -> bool:
    stamp = int(got.headers["webhook-timestamp"])
    expected = signed_headers(got.id, stamp, got.body, [secret])["webhook-signature"]
    return expected in got.headers["webhook-signature"].split(" ")


def test_an_endpoint_signs_with_its_own_secret_and_both_during_a_rotation(
    kit: Kit, receiver: Receiver
) -> None:
    endpoint, first = service(kit).add("acme", receiver.url("/ep"), types=[COMPLETED])
    pay(kit)
    kit.advance(seconds=2)
    second = service(kit).rotate(endpoint.id, overlap_s=3_600)
    pay(kit)
    kit.advance(seconds=2)
    kit.advance(seconds=3_700)
    pay(kit)
    kit.advance(seconds=2)
    told = [(signed_by(got, first), signed_by(got, second)) for got in receiver.at("/ep")]
    assert told == [(True, False), (True, True), (False, True)]
    with kit.connections.engine.connect() as sql:
        stored = sql.execute(text("SELECT secret FROM webhook_secret")).scalars().all()
    assert stored
    assert all(first not in each and second not in each for each in stored)
    service(kit).delete(endpoint.id)
    with kit.connections.engine.connect() as sql:
        left = sql.execute(
            text("SELECT count(*) FROM webhook_secret WHERE owner LIKE ':endpoint:%'")
        ).scalar_one()
    assert left == 0


def test_without_a_key_ring_there_is_no_endpoint(new_kit: NewKit, receiver: Receiver) -> None:
    kit = new_kit(keyring="")
    with pytest.raises(NoKeyRing):
        register(kit, receiver)
    assert service(kit).store.find_all() == []


# Changing.


def test_a_new_url_is_told_of_what_waits(kit: Kit, receiver: Receiver) -> None:
    receiver.always("/old", answers(500))
    endpoint = register(kit, receiver, "/old", types=[COMPLETED])
    pay(kit)
    kit.advance(seconds=2)
    service(kit).change(endpoint.id, url=receiver.url("/new"))
    kit.advance(seconds=60)
    assert len(receiver.at("/new")) == 1


def test_one_that_is_disabled_gets_nothing_and_goes_on_from_when_it_is_enabled(
    kit: Kit, receiver: Receiver
) -> None:
    endpoint = register(kit, receiver, types=[COMPLETED])
    service(kit).change(endpoint.id, enabled=False)
    pay(kit, 1)
    kit.advance(seconds=2)
    service(kit).change(endpoint.id, enabled=True)
    pay(kit, 2)
    kit.advance(seconds=2)
    assert [got.data["output"] for got in receiver.at("/ep")] == [{"paid": 2}]


def test_410_disables_it_with_an_alert_and_cancels_what_waits(kit: Kit, receiver: Receiver) -> None:
    receiver.always("/ep", answers(410))
    endpoint = register(kit, receiver)
    pay(kit)
    kit.advance(seconds=2)
    pay(kit)
    kit.advance(seconds=60)
    found = service(kit).store.find(endpoint.id)
    assert (found.enabled, "410" in (found.disabled_reason or "")) == (False, True)
    assert not [row for row in rows(kit) if row[2] == "pending"]
    [alert] = [
        each for each in alerts_of(kit.connections).open_alerts() if each.kind == ENDPOINT_GONE
    ]
    assert alert.subject == f"acme {endpoint.id}"
    service(kit).change(endpoint.id, enabled=True)
    assert not [
        each for each in alerts_of(kit.connections).open_alerts() if each.kind == ENDPOINT_GONE
    ]


def test_410_of_the_url_before_does_not_disable_the_new_one(kit: Kit, receiver: Receiver) -> None:
    """Its answer may come after the owner has given another URL."""
    store = service(kit).store
    endpoint = register(kit, receiver, "/old?key=1")
    service(kit).change(endpoint.id, url=receiver.url("/new"))
    assert not store.disable(endpoint.id, "gone", target=receiver.url("/old"))
    assert store.find(endpoint.id).enabled
    assert store.disable(endpoint.id, "gone", target=receiver.url("/new"))
    assert not store.find(endpoint.id).enabled


def test_a_crash_while_one_is_added_leaves_no_endpoint_without_a_known_secret(
    kit: Kit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any, **__: Any) -> str:
        raise SimulatedCrash

    monkeypatch.setattr(service(kit)._secrets, "rotate", crash)
    with pytest.raises(SimulatedCrash):
        register(kit, receiver)
    assert service(kit).store.find_all() == []


def test_what_is_not_acceptable_is_refused(
    new_kit: NewKit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_service, "ENDPOINTS_MAX", 1)
    kit = new_kit()
    made = service(kit)
    with pytest.raises(WebhookInvalid):
        made.add("acme", "ftp://example.com/")
    with pytest.raises(WebhookInvalid):
        made.add("acme", "http://169.254.169.254/")
    with pytest.raises(WebhookInvalid, match=r"transaction\.paid"):
        register(kit, receiver, types=["transaction.paid"])
    endpoint = register(kit, receiver)
    with pytest.raises(WebhookInvalid, match="as many as may be"):
        register(kit, receiver)
    with kit.connections.engine.connect() as sql:
        signers = sql.execute(text("SELECT owner FROM webhook_secret")).scalars().all()
    assert signers == [endpoint.signer]
    with pytest.raises(WebhookInvalid):
        made.change(endpoint.id, url="http://10.0.0.1/")
    with pytest.raises(WebhookUnknown):
        made.change(endpoint.id, owner="zeta", enabled=False)
    with pytest.raises(WebhookUnknown):
        made.test(endpoint.id, owner="zeta")


# Test events and replays.


def test_a_test_event_is_sent_and_dropped_like_others(new_kit: NewKit, receiver: Receiver) -> None:
    kit = new_kit(keep_webhooks_days=1)
    endpoint = register(kit, receiver, types=[COMPLETED])
    delivery = service(kit).test(endpoint.id)
    kit.advance(seconds=2)
    [got] = receiver.at("/ep")
    assert (got.id, got.json["type"]) == (delivery, "endpoint.test")
    assert got.data == {"endpointId": endpoint.id}
    kit.advance(days=2)
    assert rows(kit) == []


def test_a_replay_that_began_on_another_server_ends_and_holds_up_nothing(
    kit: Kit, receiver: Receiver
) -> None:
    endpoint = register(kit, receiver, types=[COMPLETED])
    began = kit.connections.record.server_now()
    service(kit).replay(endpoint.id, began, began + timedelta(days=1))
    with kit.connections.engine.begin() as sql:
        sql.execute(text("UPDATE webhook_endpoint SET replay_xact = '999999999999'"))
    pay(kit, 1)
    service(kit).feed(endpoints_max=10, rows_max=10)
    assert service(kit).store.find(endpoint.id).replay is None
    assert [state for _, _, state in rows(kit)] == ["pending"]


def test_a_replay_tells_again_what_happened_in_that_time_and_what_was_missed(
    kit: Kit, receiver: Receiver
) -> None:
    endpoint = register(kit, receiver, types=[COMPLETED])
    pay(kit, 1)
    kit.advance(seconds=10)
    began = kit.clock.now()
    assert began is not None
    pay(kit, 2)
    kit.advance(seconds=2)
    service(kit).change(endpoint.id, enabled=False)
    pay(kit, 3)
    kit.advance(seconds=2)
    service(kit).change(endpoint.id, enabled=True)
    until = kit.clock.now()
    assert until is not None
    kit.advance(seconds=1)
    pay(kit, 4)
    kit.advance(seconds=2)
    before = [(got.data["output"]["paid"], got.id) for got in receiver.at("/ep")]
    assert [paid for paid, _ in before] == [1, 2, 4]
    service(kit).replay(endpoint.id, began, until)
    with pytest.raises(WebhookBusy):
        service(kit).replay(endpoint.id, began, until)
    for _ in range(5):
        service(kit).feed(endpoints_max=10, rows_max=2)
    kit.advance(seconds=2)
    again = [(got.data["output"]["paid"], got.id) for got in receiver.at("/ep")][3:]
    assert sorted(paid for paid, _ in again) == [2, 3]
    # What was told before comes again under its own id.
    assert before[1] in again
    assert service(kit).store.find(endpoint.id).replay is None
    with pytest.raises(WebhookInvalid):
        service(kit).replay(endpoint.id, until, began - timedelta(seconds=1))
    # All that there is; and one that is disabled meanwhile is not told of it later.
    service(kit).replay(endpoint.id, datetime.min.replace(tzinfo=UTC), until)
    service(kit).change(endpoint.id, enabled=False)
    assert service(kit).change(endpoint.id, enabled=True).replay is None


def test_the_commands(kit: Kit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    from datp_tasks.cli import endpoints as commands

    monkeypatch.setattr(commands, "connect", lambda: _Context(kit))

    def run(*words: str) -> str:
        done = CliRunner().invoke(commands.app, words)
        assert done.exit_code == 0, done.output
        return done.output

    id, secret = run("add", receiver.url("/ep"), "--owner", "acme").split()
    assert secret.startswith("whsec_")
    assert id in run("list") and id in run("list", "--json")
    run("set", id, "--type", COMPLETED, "--description", "books")
    assert COMPLETED in run("show", id)
    assert run("rotate", id, "--overlap-s", "0").startswith("whsec_")
    assert run("test", id).startswith("msg_")
    last = AuditChain(kit.connections.engine).actions(subject=id)[0]
    assert (last.action, last.actor) == ("webhook-endpoint.test", "ann")
    run("replay", id, "--from", "2027-01-31T12:00:00Z", "--to", "2027-01-31T13:00:00Z")
    run("set", id, "--disable")
    assert "deleted" in run("delete", id)
    assert "no endpoints" in run("list")


class _Context:
    def __init__(self, kit: Kit) -> None:
        self.webhooks = kit.connections.webhooks
        self.actor = Actor(name="ann", role=Role.ADMIN)


def secrets_of(kit: Kit, endpoint_id: str) -> int:
    with kit.connections.engine.connect() as sql:
        query = "SELECT count(*) FROM webhook_secret WHERE owner = :signer"
        return int(sql.execute(text(query), {"signer": signer_of(endpoint_id)}).scalar_one())


def test_an_endpoint_whose_commit_was_not_answered_is_taken_back(
    kit: Kit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was never shown to its owner: neither it nor its secret stays."""
    store, made = service(kit).store, []
    add = type(store).add

    def add_and_lose(self: Endpoints, *given: Any, **more: Any) -> Endpoint:
        made.append(add(self, *given, **more))
        raise ConnectionError("the answer to the commit was lost")

    monkeypatch.setattr(Endpoints, "add", add_and_lose)
    with pytest.raises(ConnectionError):
        service(kit).add("acme", receiver.url("/ep"), actor=Actor(name="ann"))
    [lost] = made
    assert [each.id for each in store.find_all() if each.id == lost.id] == []
    assert secrets_of(kit, lost.id) == 0
    with kit.connections.engine.connect() as sql:
        query = "SELECT action FROM operator_action WHERE subject = :id ORDER BY id"
        actions = list(sql.execute(text(query), {"id": lost.id}).scalars())
    assert actions == ["webhook-endpoint.add", "webhook-endpoint.delete"]


def test_the_endpoint_that_was_added_is_read_by_the_same_transaction(
    kit: Kit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: Any, **__: Any) -> Endpoint:
        raise ConnectionError

    monkeypatch.setattr(Endpoints, "find", unavailable)
    made = register(kit, receiver)
    monkeypatch.undo()
    assert made == service(kit).store.find(made.id)
    assert secrets_of(kit, made.id) == 1


def test_the_secret_of_an_endpoint_that_exists_is_not_dropped(kit: Kit, receiver: Receiver) -> None:
    made = register(kit, receiver)
    with kit.connections.engine.begin() as sql:
        values = {"id": made.id, "signer": made.signer}
        sql.exec_driver_sql(Query.drop_secrets, values)
    assert secrets_of(kit, made.id) == 1
    service(kit).delete(made.id)
    assert secrets_of(kit, made.id) == 0


def test_the_ids_of_deliveries_do_not_count(kit: Kit, receiver: Receiver) -> None:
    """From two of them an owner could tell how many others were sent in between."""
    register(kit, receiver, types=[COMPLETED])
    for _ in range(4):
        pay(kit)
    service(kit).feed(endpoints_max=10, rows_max=10)
    with kit.connections.engine.connect() as sql:
        found = sql.execute(text("SELECT id, sequence FROM webhook_delivery ORDER BY created_at"))
        numbers = [row.sequence for row in found]
    assert len(numbers) == 4 and min(numbers) >= 1_000_000_000
    assert all(abs(a - b) > 10 for a, b in pairwise(sorted(numbers)))
