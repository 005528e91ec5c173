"""Redis or PostgreSQL away: what is accepted is accepted, everything else says so."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlalchemy.engine import make_url

from datp_tasks.client import submit as submit_module
from datp_tasks.client.requests import Request, prepare
from datp_tasks.errors import DatabaseUnavailable
from datp_tasks.model.actor import Role
from datp_tasks.testing import Kit
from tests.api.test_api_transactions import submitted
from tests.support.api_house import ApiHouse, api_house
from tests.support.eventually import eventually

SETTINGS = {"key_cache_s": 60.0}
CONSTANTS = {
    "live.connect.TIMEOUT_S": 1.0,
    "client.submit.BATCH_MAX": 2,
    "client.submit_in.BATCH_MAX": 2,
}
WANTED = {"pipeline": "echo", "input": {}, "externalId": "once"}


@pytest.fixture(scope="module")
def nobodys_port() -> Iterator[int]:
    """A port at which nobody listens, and nobody else will meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def problem(answer: httpx.Response, status: int, kind: str) -> None:
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:datp:problem:{kind}")
    assert answer.headers["content-type"] == "application/problem+json"


def test_without_redis_transactions_are_accepted_and_placed_later(
    kit: Kit, nobodys_port: int
) -> None:
    settings = replace(kit.settings, redis_url=f"redis://127.0.0.1:{nobodys_port}/0")
    with api_house(kit, settings) as house:
        client = house.client("acme")
        first = client.post("/v1/transactions", json=WANTED)
        again = client.post("/v1/transactions", json=WANTED)
        assert (first.status_code, again.status_code) == (202, 200)
        tx_id = first.json()["txId"]
        assert client.get(f"/v1/transactions/{tx_id}").json()["status"] == "queued"
        assert client.get(f"/v1/transactions/{tx_id}?wait=0.2").status_code == 200
        assert client.get("/readyz").json()["status"] == "degraded"
        operator = house.client("ops", Role.OPERATOR)
        problem(operator.post(f"/v1/transactions/{tx_id}/wake"), 503, "redis-unavailable")
    kit.recover()
    assert kit.status(tx_id).status == "success"


def test_without_postgresql_nothing_is_accepted_and_that_is_said(
    kit: Kit, nobodys_port: int
) -> None:
    url = make_url(kit.settings.database_url).set(port=nobodys_port, password="hunter2-secret")
    away = replace(kit.settings, database_url=url.render_as_string(hide_password=False))
    with api_house(kit, away) as house:
        client = house.client("acme")
        for answer in (
            client.post("/v1/transactions", json=WANTED),
            client.get("/v1/transactions"),
            client.get("/readyz"),
        ):
            problem(answer, 503, "record-unavailable")
            assert int(answer.headers["retry-after"]) >= 1
            assert [
                word for word in ("hunter2", "connection", "port", "host") if word in answer.text
            ] == []
        assert client.get("/healthz").status_code == 200


def test_what_the_library_of_postgresql_said_is_in_the_log_under_the_error_id(
    kit: Kit, nobodys_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also for one who has no valid key."""
    url = make_url(kit.settings.database_url).set(port=nobodys_port)
    away = replace(kit.settings, database_url=url.render_as_string(hide_password=False))
    with api_house(kit, away) as house:
        answer = house.client(key="datp_0123456789abcdef_" + "x" * 43).get("/v1/transactions")
    problem(answer, 503, "record-unavailable")
    assert str(nobodys_port) not in answer.text
    (line,) = [
        each.getMessage()
        for each in caplog.records
        if answer.json()["errorId"] in each.getMessage()
    ]
    assert str(nobodys_port) in line


def test_a_long_poll_outlasts_an_outage_of_postgresql(
    house: ApiHouse, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is away for a while after the waiter has registered."""
    tx_id = submitted(acme, "nap")
    services = house.services
    look = services.client.status_many
    fails = 0

    def away(tx_ids: Any) -> Any:
        nonlocal fails
        fails += 1
        if fails <= 2:
            raise DatabaseUnavailable
        return look(tx_ids)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(acme.get, f"/v1/transactions/{tx_id}", params={"wait": 20})
        eventually(lambda: len(services.waits.polls) == 1)
        eventually(lambda: services.waits.polls._watched[tx_id].seen >= 0)
        monkeypatch.setattr(services.shared.looks, "_work", away)
        house.kit.client.set_switch(tx_id, "go", True)
        answer = waiting.result(20)
    assert (answer.status_code, answer.json()["status"]) == (200, "success")
    assert fails > 2


class Spoiler:
    """Makes some requests such that nobody notices before the database does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(submit_module, "prepare", self._prepare)

    def _prepare(self, request: Request, *rest: Any) -> Any:
        if "away" in request.input:
            raise DatabaseUnavailable
        prepared = prepare(request, *rest)
        if "bad" in request.input:
            object.__setattr__(prepared.acceptance, "input_json", "{")
        return prepared


def sent_in_bulk(client: httpx.Client, *data: dict[str, Any]) -> list[int]:
    items = [{"pipeline": "echo", "input": each} for each in data]
    answer = client.post("/v1/transactions/bulk", json={"transactions": items})
    assert answer.status_code in (202, 207), answer.text
    return [each["status"] for each in answer.json()["results"]]


def stored(client: httpx.Client) -> list[Any]:
    found = client.get("/v1/transactions").json()["transactions"]
    return sorted(each["input"]["n"] for each in found)


def test_one_that_the_database_cannot_take_does_not_take_others_along_and_doubles_none(
    acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole statement fails, and only that one: the batch before it is committed."""
    Spoiler(monkeypatch)
    data = ({"n": 1}, {"n": 2}, {"n": 3}, {"n": 4, "bad": 1}, {"n": 5})
    assert sent_in_bulk(acme, *data) == [202, 202, 202, 500, 202]
    assert stored(acme) == [1, 2, 3, 5]


def test_a_bulk_during_which_the_database_goes_away_says_what_is_committed(
    acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spoiler(monkeypatch)
    data = ({"n": 1}, {"n": 2}, {"n": 3}, {"n": 4, "away": 1}, {"n": 5})
    assert sent_in_bulk(acme, *data) == [202, 202, 503, 503, 202]
    assert stored(acme) == [1, 2, 5]
    answer = acme.post(
        "/v1/transactions/bulk",
        json={"transactions": [{"pipeline": "echo", "input": {"n": 6, "away": 1}}]},
    )
    problem(answer, 503, "record-unavailable")
