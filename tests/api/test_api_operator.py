"""What operators can see and do; and that it is written down."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from datp_tasks import Pipeline
from datp_tasks.api.lists import make_cursor
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.grants import Grants
from datp_tasks.record import ledger_batches
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.api_keys import OwnerLimits
from datp_tasks.record.feed_places import FeedNames, OldPlaces
from datp_tasks.testing import Kit
from tests.api.test_api_transactions import shown, submitted
from tests.support.api_house import ApiHouse
from tests.support.eventually import eventually
from tests.support.ledger_world import payload_of


def ok(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 202), answer.text
    return answer.json()


def actions(kit: Kit, subject: str) -> list[tuple[str, str]]:
    with kit.connections.engine.connect() as sql:
        rows = sql.execute(
            text("SELECT actor, action FROM operator_action WHERE subject = :s ORDER BY id"),
            {"s": subject},
        )
        return [(row.actor, row.action) for row in rows]


def test_a_transaction_is_seen_from_the_inside(
    house: ApiHouse, acme: httpx.Client, ops: httpx.Client
) -> None:
    tx_id = submitted(acme, "nap")
    state = ok(ops.get(f"/v1/transactions/{tx_id}/state"))
    assert (state["source"], state["status"], state["wakeSwitch"]) == ("live", "sleeping", "go")
    assert state["state"]["stack"][0][0] == "nap"
    journal = ok(ops.get(f"/v1/transactions/{tx_id}/deltas"))
    assert journal["entries"][0]["kind"] == "claim"
    assert journal["faults"] == []
    house.kit.client.set_switch(tx_id, "go", True)
    house.kit.advance(seconds=120)
    prefix = house.kit.settings.key_prefix
    house.kit.connections.redis.delete(f"{prefix}:{{{tx_id[1:3]}}}:stateH:{tx_id}")
    state = ok(ops.get(f"/v1/transactions/{tx_id}/state"))
    assert (state["source"], state["status"]) == ("archive", "success")


def test_what_steps_said_is_read_page_by_page(
    house: ApiHouse, acme: httpx.Client, ops: httpx.Client
) -> None:
    @house.kit.step("t/talks")
    def talks(ctx: Any, data: dict[str, Any]) -> None:
        ctx.log.info("holds", cents=12)
        ctx.log.warning("twice")

    house.kit.use(Pipeline("talks").step("t/talks").build())
    place = f"/v1/transactions/{submitted(acme, 'talks')}/logs"
    assert acme.get(place).status_code == 403
    first = ok(ops.get(place, params={"limit": 1}))
    [line] = first["lines"]
    assert (line["level"], line["text"], line["fields"]) == ("info", "holds", {"cents": 12})
    assert (line["step"], line["stepType"], line["attempt"]) == ("0", "t/talks", 1)
    rest = ok(ops.get(place, params={"cursor": first["nextCursor"]}))
    assert [each["text"] for each in rest["lines"]] == ["twice"]
    assert rest["nextCursor"] is None
    assert ops.get(place, params={"cursor": "soon"}).status_code == 422


def test_step_types_are_listed_with_what_they_are_for(ops: httpx.Client) -> None:
    listed = {each["name"]: each for each in ok(ops.get("/v1/step-types"))["stepTypes"]}
    delay = ok(ops.get("/v1/step-types/util/delay"))
    assert delay == listed["util/delay"]
    assert delay["description"].endswith(".") and "seconds" in delay["parameters"]["properties"]
    assert delay["defaultDefinition"]["type"] == "util/delay"
    assert ops.get("/v1/step-types/util/none").status_code == 404


def test_one_in_doubt_is_decided_and_who_did_it_is_written_down(
    house: ApiHouse, acme: httpx.Client, ops: httpx.Client
) -> None:
    kit = house.kit

    @kit.step("t/review", on_crash="review")
    def review(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return {"ran": True}

    kit.use(Pipeline("review").step("t/review").build())
    kit.crash_at("hop.after_step")
    first = submitted(acme, "review")
    kit.recover()
    assert shown(acme, first)["status"] == "in-doubt"
    assert [each["txId"] for each in ok(ops.get("/v1/in-doubt"))["transactions"]] == [first]
    unsaid = ops.post(f"/v1/transactions/{first}/resolve", json={"decision": "done", "reason": ""})
    assert unsaid.status_code == 422
    for action, body in (("retry", {}), ("resolve", {"decision": "done"})):
        moved = ops.post(
            f"/v1/transactions/{first}/{action}",
            json={"reason": "seen", **body},
            headers={"If-Match": '"0-queued-0"'},
        )
        assert moved.status_code == 412
    decided = {"decision": "done", "reason": "the bank says so", "output": {"by": "hand"}}
    ok(ops.post(f"/v1/transactions/{first}/resolve", json=decided))
    assert shown(acme, first)["output"] == {"by": "hand"}
    [(actor, action)] = actions(kit, first)
    assert (actor.startswith("key "), action) == (True, "resolve")
    late = ops.post(f"/v1/transactions/{first}/retry", json={"reason": "again"})
    assert (late.status_code, late.json()["type"]) == (409, "urn:datp:problem:transaction-final")

    kit.crash_at("hop.after_step")
    second = submitted(acme, "review")
    kit.recover()
    ok(ops.post(f"/v1/transactions/{second}/retry", json={"reason": "it never arrived"}))
    assert shown(acme, second)["output"] == {"ran": True}


RACES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "resolve": ("decide", "resolve", {"decision": "done"}),
    "retry in doubt": ("decide", "retry", {}),
    "retry asleep": ("nap", "retry", {}),
}


@pytest.mark.parametrize("race", RACES)
def test_of_two_who_decide_at_once_on_what_they_saw_one_is_told_that_it_has_moved(
    house: ApiHouse, acme: httpx.Client, ops: httpx.Client, race: str
) -> None:
    kit = house.kit
    pipeline, action, body = RACES[race]

    @kit.step("t/decide", on_crash="review")
    def decided(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return {"ran": True}

    kit.use(Pipeline("decide").step("t/decide").build())
    people = [ops, house.client("other", Role.OPERATOR)]
    ids = []
    for _ in range(2):
        if pipeline == "decide":
            kit.crash_at("hop.after_step")
        ids.append(submitted(acme, pipeline))
    if pipeline == "decide":
        kit.recover()
    for tx_id in ids:
        seen = {each.get(f"/v1/transactions/{tx_id}").headers["ETag"] for each in people}
        assert len(seen) == 1
        start = threading.Barrier(len(people))

        def decide(
            number: int, start: Any = start, tx_id: str = tx_id, etag: str = min(seen)
        ) -> httpx.Response:
            place = f"/v1/transactions/{tx_id}/{action}"
            wanted = {"reason": "seen", **body}
            if action == "resolve":
                wanted["output"] = {"by": number}
            start.wait()
            return people[number].post(place, json=wanted, headers={"If-Match": etag})

        with ThreadPoolExecutor(len(people)) as threads:
            answers = list(threads.map(decide, range(len(people))))
        codes = sorted(each.status_code for each in answers)
        assert codes in ([200, 412], [202, 412]), [each.json().get("detail") for each in answers]
        refused = next(each for each in answers if each.status_code == 412)
        assert refused.headers["ETag"] != min(seen)
        now = shown(acme, tx_id)
        if action == "resolve":
            winner = next(n for n, each in enumerate(answers) if each.status_code != 412)
            assert (now["status"], now["output"]) == ("success", {"by": winner})


def test_what_a_key_does_to_a_transaction_is_written_down(
    house: ApiHouse, acme: httpx.Client, ops: httpx.Client
) -> None:
    tx_id = submitted(acme, "nap")
    ok(ops.post(f"/v1/transactions/{tx_id}/wake"))
    ok(ops.post(f"/v1/transactions/{tx_id}/cancel", json={"reason": "asked by phone"}))
    assert [action for _, action in actions(house.kit, tx_id)] == [
        "transaction.wake",
        "transaction.cancel",
    ]
    mine = submitted(acme, "nap")
    ok(acme.post(f"/v1/transactions/{mine}/cancel"))
    [(actor, action)] = actions(house.kit, mine)
    assert (actor.startswith("key "), action) == (True, "transaction.cancel")


def test_an_operator_who_looks_does_not_count_as_the_client(
    house: ApiHouse, acme: httpx.Client, ops: httpx.Client
) -> None:
    tx_id = submitted(acme)
    for _ in range(3):
        assert shown(ops, tx_id)["notifiedAt"] is None
    assert house.kit.client.status(tx_id).notified_at is None


def test_pipelines_are_listed_shown_disabled_and_used_again(
    house: ApiHouse, acme: httpx.Client, ops: httpx.Client
) -> None:
    house.kit.use(Pipeline("brief").step("t/echo").build())
    names = [each["name"] for each in ok(ops.get("/v1/pipelines"))["pipelines"]]
    assert "brief" in names
    found = ok(ops.get("/v1/pipelines/brief"))
    version = found["versions"][0]["version"]
    assert found["definition"]["steps"][0]["type"] == "t/echo"
    ok(ops.post("/v1/pipelines/brief/disable"))
    refused = acme.post("/v1/transactions", json={"pipeline": "brief", "input": {}})
    assert (refused.status_code, refused.json()["type"]) == (
        409,
        "urn:datp:problem:pipeline-disabled",
    )
    assert ok(ops.post(f"/v1/pipelines/brief/versions/{version}/use"))["inUse"]
    submitted(acme, "brief")
    actors = {actor for actor, _ in actions(house.kit, "brief")[-2:]}
    assert len(actors) == 1 and next(iter(actors)).startswith("key ")
    for path in ("/v1/pipelines/none/disable", "/v1/pipelines/none/versions/0/use"):
        assert ops.post(path).status_code == 404
    assert ops.get("/v1/pipelines/none").status_code == 404


def test_queues_nodes_and_alerts_are_shown(
    house: ApiHouse, acme: httpx.Client, ops: httpx.Client
) -> None:
    before = ok(ops.get("/v1/queues"))
    submitted(acme, "nap")
    queues = ok(ops.get("/v1/queues"))
    assert queues["transactions"]["sleepingZ"] == before["transactions"]["sleepingZ"] + 1
    # It sleeps: no bell waits for it. Tests before this one may have left some.
    assert queues["bells"]["master"] == before["bells"]["master"]
    assert isinstance(ok(ops.get("/v1/nodes"))["nodes"], list)
    alerts = Alerts(house.kit.connections.engine, house.kit.connections.clock)
    alerts.raise_alert("test", "the-subject", "somebody should look")
    [alert] = [each for each in ok(ops.get("/v1/alerts"))["alerts"] if each["kind"] == "test"]
    assert (alert["subject"], alert["summary"]) == ("the-subject", "somebody should look")


def test_webhook_deliveries_are_listed_and_sent_again_by_their_owner_and_operators(
    house: ApiHouse, acme: httpx.Client, zeta: httpx.Client, ops: httpx.Client
) -> None:
    tx_id = submitted(acme, webhook="https://hooks.example.com/x")
    [delivery] = ok(acme.get("/v1/webhooks", params={"txId": tx_id}))["webhooks"]
    assert (delivery["txId"], delivery["sequence"], delivery["kind"]) == (tx_id, 1, "final")
    path = f"/v1/webhooks/{delivery['id']}"
    assert ok(acme.get(path))["attempts"] == []
    assert ok(zeta.get("/v1/webhooks"))["webhooks"] == []
    assert zeta.get(path).status_code == zeta.post(f"{path}/redeliver").status_code == 404
    assert delivery["id"] in [each["id"] for each in ok(ops.get("/v1/webhooks"))["webhooks"]]
    kill(house, delivery["id"])
    [dead] = ok(acme.get("/v1/webhooks", params={"state": "dead"}))["webhooks"]
    assert dead["id"] == delivery["id"]
    once = {"Idempotency-Key": "again"}
    assert ok(acme.post(f"{path}/redeliver", headers=once))["state"] == "pending"
    # Its URL may be erased: the answer is not kept, but made anew.
    with house.kit.connections.engine.connect() as sql:
        kept = sql.execute(text("SELECT body, tx_id FROM idempotency_key WHERE key = 'again'"))
        assert kept.one() == (None, None)
    kill(house, delivery["id"])
    shown_now = acme.post(f"{path}/redeliver", headers=once)
    assert (shown_now.status_code, shown_now.headers["Idempotent-Replayed"]) == (202, "true")
    assert shown_now.json()["state"] == "dead"
    assert ok(ops.post(f"{path}/redeliver"))["state"] == "pending"
    audited = actions(house.kit, dead["id"])
    assert [action for _, action in audited] == ["webhook.redeliver"] * 2
    assert len({actor for actor, _ in audited}) == 2


def test_another_owner_cannot_send_a_dead_delivery_again(
    house: ApiHouse, acme: httpx.Client, zeta: httpx.Client
) -> None:
    """Dead, so that nothing but whose it is stands in the way."""
    tx_id = submitted(acme, webhook="https://hooks.example.com/x")
    [delivery] = ok(acme.get("/v1/webhooks", params={"txId": tx_id}))["webhooks"]
    kill(house, delivery["id"])
    before = ok(acme.get(f"/v1/webhooks/{delivery['id']}"))
    refused = zeta.post(f"/v1/webhooks/{delivery['id']}/redeliver")
    assert (refused.status_code, refused.json()["type"]) == (404, "urn:datp:problem:not-found")
    assert ok(acme.get(f"/v1/webhooks/{delivery['id']}")) == before
    assert before["state"] == "dead"


def kill(house: ApiHouse, delivery_id: str) -> None:
    """As if all tries had failed."""
    with house.kit.connections.engine.begin() as sql:
        sql.execute(
            text("UPDATE webhook_delivery SET state = 'dead', finished_at = now() WHERE id = :id"),
            {"id": delivery_id},
        )


def test_a_poll_that_tells_the_end_cancels_the_webhook_if_that_was_asked_for(
    house: ApiHouse, acme: httpx.Client
) -> None:
    hook = {"webhook": "https://hooks.example.com/x"}
    kept = submitted(acme, **hook)
    needless = submitted(acme, **hook, cancelWebhookOnPoll=True)

    def states(tx_id: str) -> list[str]:
        found = ok(acme.get("/v1/webhooks", params={"txId": tx_id}))["webhooks"]
        return [each["state"] for each in found]

    for tx_id in (kept, needless):
        shown(acme, tx_id)
    eventually(lambda: states(needless) == ["cancelled"])
    eventually(lambda: shown(acme, kept)["notifiedAt"] is not None)
    assert states(kept) == ["pending"]


def test_a_webhook_that_must_not_be_is_refused(acme: httpx.Client) -> None:
    for url in ("ftp://example.com", "https://user:pw@example.com/", "not a url"):
        wanted = {"pipeline": "echo", "input": {}, "webhook": url}
        answer = acme.post("/v1/transactions", json=wanted)
        assert (answer.status_code, answer.json()["type"]) == (
            422,
            "urn:datp:problem:webhook-invalid",
        )


def with_batches(house: ApiHouse) -> httpx.Client:
    """A client whose owner has nothing yet, and whose key may hand in batches."""
    grants = Grants.parse(["batch:*", "read"])
    return house.client(key=house.new_key(house.new_owner("granted"), grants=grants))


@pytest.mark.parametrize("payload", ["", "%%%", base64.b64encode(b"x").decode()])
def test_a_batch_for_nowhere_is_refused(house: ApiHouse, payload: str) -> None:
    answer = with_batches(house).post(
        "/v1/batches", json={"service": "nowhere", "payload": payload}
    )
    assert answer.status_code == 422


def test_batches_are_handed_in_and_seen_by_their_owner_only(
    house: ApiHouse, ops: httpx.Client
) -> None:
    acme, zeta = with_batches(house), with_batches(house)
    house.kit.client.add_service("settle", kind="sawtooth", url="http://127.0.0.1:9")
    house.kit.lose_bells()
    try:
        wanted = {"service": "settle", "payload": base64.b64encode(payload_of("ab" * 64)).decode()}
        made = acme.post("/v1/batches", json=wanted)
        again = acme.post("/v1/batches", json=wanted)
    finally:
        house.kit.lose_bells(False)
    assert (made.status_code, again.status_code) == (202, 200), made.text
    assert submits_noted(house) == 1
    path = made.headers["location"]
    assert ok(acme.get(path))["batchId"] == made.json()["batchId"]
    assert zeta.get(path).status_code == 404
    assert ok(zeta.get("/v1/batches"))["batches"] == []
    assert [each["batchId"] for each in ok(ops.get("/v1/batches"))["batches"]] == [
        made.json()["batchId"]
    ]


def test_batches_of_one_owner_do_not_count_those_of_others(
    house: ApiHouse, ops: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme, zeta = with_batches(house), with_batches(house)
    house.kit.client.add_service("shared", kind="sawtooth", url="http://127.0.0.1:9")
    house.kit.lose_bells()
    try:
        made = []
        for client, number in (
            (acme, "01"),
            (zeta, "02"),
            (zeta, "03"),
            (acme, "04"),
            (acme, "05"),
        ):
            payload = base64.b64encode(payload_of(number * 64)).decode()
            answer = client.post("/v1/batches", json={"service": "shared", "payload": payload})
            assert answer.status_code == 202, answer.text
            made += [answer.json()] if client is acme else []
    finally:
        house.kit.lose_bells(False)
    about: dict[str, Any] = {"service": "shared", "limit": 2}
    page = ok(acme.get("/v1/batches", params=about))
    rest = ok(acme.get("/v1/batches", params=about | {"cursor": page["nextCursor"]}))
    own = [*page["batches"], *rest["batches"]]
    assert [each["batchId"] for each in own] == [each["batchId"] for each in made]
    one = ok(acme.get(f"/v1/batches/shared/{made[0]['batchId']}"))
    assert {each["position"] for each in [*made, *own, one]} == {None}
    assert b"shared" not in base64.urlsafe_b64decode(page["nextCursor"] + "==")
    seen = ok(ops.get("/v1/batches", params={"service": "shared"}))["batches"]
    assert [each["position"] for each in seen] == [1, 2, 3, 4, 5]
    # One owner cannot ask by made-up cursors how many batches of others are between its own.
    forged = about | {"cursor": make_cursor("shared", 3)}
    assert acme.get("/v1/batches", params=forged).status_code == 422
    # An operator sees positions; a cursor of the release before is read.
    [fourth, _] = ok(ops.get("/v1/batches", params=forged))["batches"]
    assert fourth["position"] == 4
    # While processes of the release before may still answer, all have one form.
    feed = house.services.waits.streams.feed
    now = datetime.now(UTC)
    mixed = FeedNames(bytes(32), OldPlaces(0, 1, 0, now + timedelta(days=1)), now=now)
    monkeypatch.setitem(vars(feed), "names", mixed)
    assert ok(acme.get("/v1/batches", params=about))["nextCursor"] == make_cursor("shared", 4)
    assert ok(acme.get("/v1/batches", params=forged))["batches"] == own[1:]
    monkeypatch.undo()
    # Retention may drop the last one of a page before the next page is asked for.
    with house.kit.connections.engine.begin() as connection:
        gone = "DELETE FROM ledger_batch WHERE service_id = 'shared' AND seq = 4"
        connection.exec_driver_sql(gone)
    again = ok(acme.get("/v1/batches", params=about | {"cursor": page["nextCursor"]}))
    assert again["batches"] == rest["batches"]


def submits_noted(house: ApiHouse) -> int:
    with house.kit.connections.engine.connect() as sql:
        query = "SELECT count(*) FROM operator_action WHERE action = 'batch.submit'"
        return int(sql.exec_driver_sql(query).scalar_one())


def test_a_batch_is_stored_with_its_line_in_the_audit_or_not_at_all(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.client.add_service("audited", kind="sawtooth", url="http://127.0.0.1:9")

    def fails(*_: Any, **__: Any) -> None:
        raise ConnectionError("the process dies here")

    monkeypatch.setattr(ledger_batches, "note_action", fails)
    with pytest.raises(ConnectionError):
        kit.client.submit_batch("audited", payload_of("cd" * 64), by=Actor(name="key x"))
    assert kit.client.batches(service_id="audited") == []


def test_a_batch_that_was_stored_is_answered_also_at_the_limit(house: ApiHouse, kit: Kit) -> None:
    kit.client.add_service("full", kind="sawtooth", url="http://127.0.0.1:9")
    owner = house.new_owner("full")
    house.keys.set_limits(owner, OwnerLimits(in_flight_max=1), actor=Actor(name="ann"))
    client = house.client(key=house.new_key(owner, grants=Grants.parse(["batch:*"])))
    first, second = (
        {"service": "full", "payload": base64.b64encode(payload_of(each * 64)).decode()}
        for each in ("01", "02")
    )
    kit.lose_bells()
    try:
        made = client.post("/v1/batches", json=first)
        again = client.post("/v1/batches", json=first)
        assert (made.status_code, again.status_code) == (202, 200), again.text
        assert made.json()["position"] == again.json()["position"]
        assert client.post("/v1/batches", json=second).status_code == 429
    finally:
        kit.lose_bells(False)
