"""Clients of the original's API move without a change."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.support.api_house import ApiHouse
from tests.support.eventually import eventually
from tests.support.receiver import receiving

SETTINGS = {"compat_owner": "acme"}
CONSTANTS = {"api.compat.LONG_POLL_S": 0.5}


def start(client: httpx.Client, pipeline: str = "echo", **metadata: Any) -> httpx.Response:
    body = {"metadata": metadata, "data": {"amount": 1}}
    return client.put(f"/datp/1.0/tx/start/{pipeline}", json=body)


def test_a_transaction_is_started_and_shown_in_the_originals_shape(house: ApiHouse) -> None:
    client = house.client()
    answer = start(client, externalId="o-1", poll="short", lang="FIL")
    assert answer.status_code == 200, answer.text
    tx_id = answer.json()["metadata"]["txId"]
    by_id = client.get(f"/datp/1.0/tx/status/{tx_id}")
    assert by_id.json() | {"metadata": {}} == answer.json() | {"metadata": {}}
    metadata = by_id.json()["metadata"]
    assert list(by_id.json()) == ["metadata", "progressReport", "data"]
    assert by_id.json()["data"] == {"echo": {"amount": 1}}
    assert {key: metadata[key] for key in ("owner", "externalId", "transactionType", "status")} == {
        "owner": "acme",
        "externalId": "o-1",
        "transactionType": "echo",
        "status": "success",
    }
    assert metadata["completionTime"] == metadata["lastUpdated"]
    by_name = client.get("/datp/1.0/tx/statusByExternalId/o-1").json()
    assert by_name["metadata"]["txId"] == tx_id


def test_what_is_queued_is_shown_as_running(house: ApiHouse) -> None:
    house.kit.lose_bells()
    try:
        answer = start(house.client())
    finally:
        house.kit.lose_bells(False)
    assert answer.json()["metadata"]["status"] == "running"
    assert answer.json()["metadata"]["completionTime"] is None


def test_the_same_external_id_twice_is_not_an_error_of_the_server(house: ApiHouse) -> None:
    client = house.client()
    first, again = start(client, externalId="o-2"), start(client, externalId="o-2")
    assert first.json()["metadata"]["txId"] == again.json()["metadata"]["txId"]
    assert start(client, "nap", externalId="o-2").status_code == 409


def test_a_long_poll_waits_for_the_end_or_gives_up(house: ApiHouse) -> None:
    client = house.client()
    began_s = time.monotonic()
    first = start(client, "nap", poll="long").json()["metadata"]
    assert (first["status"], time.monotonic() - began_s >= 0.5) == ("sleeping", True)
    with ThreadPoolExecutor(1) as pool:
        path = f"/datp/1.0/tx/status/{first['txId']}"
        waiting = pool.submit(client.get, path, params={"reply": "longpoll"})
        eventually(lambda: len(house.services.waits.polls) == 1)
        house.kit.client.set_switch(first["txId"], "go", True)
        assert waiting.result(10).json()["data"] == {"went": True}


def test_a_key_decides_whose_it_is_also_here(house: ApiHouse, zeta: httpx.Client) -> None:
    tx_id = start(house.client()).json()["metadata"]["txId"]
    assert zeta.get(f"/datp/1.0/tx/status/{tx_id}").status_code == 404
    mine = start(zeta).json()["metadata"]
    assert mine["owner"].startswith("zeta")
    assert house.client().get(f"/datp/1.0/tx/status/{mine['txId']}").status_code == 404
    assert house.client().get("/v1/transactions").status_code == 401
    assert house.client(key="wrong").get(f"/datp/1.0/tx/status/{tx_id}").status_code == 401


def test_the_older_ways_to_ask_for_a_webhook_are_understood(house: ApiHouse) -> None:
    client = house.client()
    older = start(client, reply="https://example.com/hook").json()["metadata"]["txId"]
    newer = start(
        client,
        webhook="https://example.com/hook",
        progressReports=True,
        pollReplyCancelsWebhook=True,
    ).json()["metadata"]["txId"]
    shown = [house.kit.client.status(tx_id) for tx_id in (older, newer)]
    assert [each.webhook for each in shown] == ["https://example.com/hook"] * 2
    flags = [(each.progress_reports, each.cancel_webhook_on_poll) for each in shown]
    assert flags == [(False, False), (True, True)]


def test_health_needs_no_key(house: ApiHouse) -> None:
    for path in ("/datp/1.0/healthcheck", "/datp/1.0/ping"):
        answer = house.client().get(path)
        assert answer.status_code == 200
        assert list(answer.json()) == [
            "subsystem",
            "status",
            "appVersion",
            "datpVersion",
            "buildTime",
        ]
    assert house.client().get("/healthz").json() == {"status": "ok"}
    ready = {"status": "ok", "postgresql": "ok", "redis": "ok"}
    assert house.client().get("/readyz").json() == ready


def test_a_webhook_has_the_body_that_the_originals_clients_look_for(house: ApiHouse) -> None:
    client = house.client()
    with receiving() as received:
        asked = {"webhook": received.url(), "progressReports": True, "externalId": "o-hook"}
        started = start(client, "nap", **asked).json()["metadata"]
        house.kit.client.set_switch(started["txId"], "go", True)
        house.kit.run_job("webhook_sender")
        eventually(lambda: len(received.at("/ok")) == 2)
        polled = client.get("/datp/1.0/tx/status/" + started["txId"]).json()
        told = {each.json["eventType"]: each.json for each in received.at("/ok")}
    assert told["progressReport"]["progressReport"] == {"waits": True}
    assert told["progressReport"]["metadata"]["status"] == "running"
    final = told["complete"]
    assert final["metadata"]["externalId"] == "o-hook"
    times = ("completionTime", "lastUpdated", "notifiedTime")
    assert [when(final["metadata"].pop(each)) for each in times[:2]] == [
        when(polled["metadata"].pop(each)) for each in times[:2]
    ]
    for each in (final, polled):
        each["metadata"].pop("notifiedTime")
    assert {key: final[key] for key in polled} == polled, "it is what a poll returns"
    assert final["data"] == {"went": True}


def when(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_what_has_news_says_when(house: ApiHouse) -> None:
    client = house.client()
    started = start(client, "nap").json()["metadata"]
    house.kit.advance(seconds=60)
    house.kit.client.set_switch(started["txId"], "go", True)
    ended = client.get("/datp/1.0/tx/status/" + started["txId"]).json()["metadata"]
    moved = when(ended["lastUpdated"]) - when(started["lastUpdated"])
    assert moved >= timedelta(seconds=60)
    health = client.get("/datp/1.0/healthcheck").json()
    assert when(health["buildTime"]) < datetime.now(UTC)
