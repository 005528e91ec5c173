"""Idempotency-Key: the same request with the same key is done once, and answered twice."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

from datp_tasks.api import once
from datp_tasks.model.approval import selection_of
from datp_tasks.record.idempotency_keys import (
    HOLD_S,
    KEEP_HOURS,
    IdempotencyKeys,
    KeptAnswer,
    KeyInUse,
    KeyTaken,
)
from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse
from tests.support.eventually import eventually
from tests.support.search_everywhere import places_with

WANTED = {"pipeline": "nap", "input": {"n": 1}}


def with_key(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def kind_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].removeprefix("urn:datp:problem:")


def count(client: httpx.Client) -> int:
    return len(client.get("/v1/transactions").json()["transactions"])


def test_a_submit_with_a_key_is_one_transaction(acme: httpx.Client) -> None:
    first = acme.post("/v1/transactions", json=WANTED, headers=with_key("one"))
    again = acme.post("/v1/transactions", json=WANTED, headers=with_key("one"))
    assert (first.status_code, "Idempotent-Replayed" in first.headers) == (202, False)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (202, "true")
    assert again.content == first.content and again.headers["Location"] == first.headers["Location"]
    assert count(acme) == 1
    # Another key, another transaction; without a key each is new.
    acme.post("/v1/transactions", json=WANTED, headers=with_key("two"))
    acme.post("/v1/transactions", json=WANTED)
    assert count(acme) == 3


def test_a_key_belongs_to_its_request_and_its_owner(acme: httpx.Client, zeta: httpx.Client) -> None:
    acme.post("/v1/transactions", json=WANTED, headers=with_key("mine"))
    other = {**WANTED, "input": {"n": 2}}
    for path, body in (("", other), ("?a=1", WANTED), ("/bulk", {"transactions": [WANTED]})):
        answer = acme.post(f"/v1/transactions{path}", json=body, headers=with_key("mine"))
        assert kind_of(answer) == (422, "idempotency-key-reused")
    assert count(acme) == 1
    assert zeta.post("/v1/transactions", json=other, headers=with_key("mine")).status_code == 202


@pytest.mark.parametrize("key", ["", "a b", "x" * 256])
def test_a_key_that_cannot_be_one_is_refused(acme: httpx.Client, key: str) -> None:
    answer = acme.post("/v1/transactions", json=WANTED, headers=with_key(key))
    assert kind_of(answer) == (422, "idempotency-key-invalid")


def test_a_refusal_is_kept_unless_it_can_pass(house: ApiHouse, acme: httpx.Client) -> None:
    unknown = {"pipeline": "later", "input": {}}
    assert kind_of(acme.post("/v1/transactions", json=unknown, headers=with_key("r"))) == (
        422,
        "pipeline-unknown",
    )
    again = acme.post("/v1/transactions", json=unknown, headers=with_key("r"))
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (422, "true")
    # What passes is not kept: the same key then does the work.
    limited = house.new_owner("limited")
    house.limit(limited, in_flight_max=0)
    client = house.client(limited)
    assert kind_of(client.post("/v1/transactions", json=WANTED, headers=with_key("l"))) == (
        429,
        "limited",
    )
    house.limit(limited, in_flight_max=5)

    def is_accepted() -> bool:
        answer = client.post("/v1/transactions", json=WANTED, headers=with_key("l"))
        return answer.status_code == 202

    eventually(is_accepted)


def test_a_bulk_of_which_a_part_can_pass_keeps_its_key_free(house: ApiHouse) -> None:
    limited = house.new_owner("bulk-limited")
    house.limit(limited, in_flight_max=1)
    client = house.client(limited)
    known = {**WANTED, "externalId": "known"}
    assert client.post("/v1/transactions", json=known).status_code == 202
    both = {"transactions": [known, WANTED]}

    def statuses() -> list[int]:
        answer = client.post("/v1/transactions/bulk", json=both, headers=with_key("b"))
        assert "Idempotent-Replayed" not in answer.headers or answer.status_code == 202
        return [each["status"] for each in answer.json().get("results", [])]

    assert statuses() == [200, 429]
    house.limit(limited, in_flight_max=5)
    eventually(lambda: statuses() == [200, 202])
    assert count(client) == 2


def test_an_action_is_done_once_and_shows_the_transaction_as_of_now(acme: httpx.Client) -> None:
    tx_id = acme.post("/v1/transactions", json=WANTED).json()["txId"]
    url = f"/v1/transactions/{tx_id}/cancel"
    first = acme.post(url, json={"reason": "a"}, headers=with_key("c"))
    assert first.status_code in (200, 202)
    # Without the key it is refused, because it has ended; with it, it is not done again.
    assert acme.post(url, json={"reason": "a"}).status_code == 409
    again = acme.post(url, json={"reason": "a"}, headers=with_key("c"))
    assert (again.status_code, again.json()["status"]) == (first.status_code, "cancelled")
    assert again.headers["Idempotent-Replayed"] == "true"


def test_payloads_are_not_kept_with_a_key(house: ApiHouse, acme: httpx.Client) -> None:
    wanted = {"pipeline": "nap", "input": {"iban": "DE4711"}}
    tx_id = acme.post("/v1/transactions", json=wanted, headers=with_key("p")).json()["txId"]
    answer = acme.post(f"/v1/transactions/{tx_id}/cancel", headers=with_key("q"))
    assert "DE4711" in answer.text
    with house.kit.connections.engine.connect() as sql:
        rows = sql.exec_driver_sql("SELECT body, headers::text FROM idempotency_key").all()
    assert len(rows) >= 2 and "DE4711" not in str(rows)


def test_many_at_once_with_one_key_are_one_transaction(house: ApiHouse) -> None:
    owner = house.new_owner("many")
    key = house.new_key(owner)

    def post(_: int) -> httpx.Response:
        with house.client(key=key) as client:
            return client.post("/v1/transactions", json=WANTED, headers=with_key("same"))

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(post, range(16)))
    done = {each.json()["txId"] for each in answers if each.status_code < 300}
    others = {kind_of(each) for each in answers if each.status_code >= 300}
    assert len(done) == 1 and others <= {(409, "idempotency-key-in-use")}
    assert count(house.client(key=key)) == 1


def test_a_process_that_died_before_its_answer_was_kept_makes_no_second_transaction(
    house: ApiHouse, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IdempotencyKeys, "keep", lambda *_: True)
    first = acme.post("/v1/transactions", json=WANTED, headers=with_key("died"))
    bulk = {"transactions": [WANTED, WANTED]}
    many = acme.post("/v1/transactions/bulk", json=bulk, headers=with_key("died-2"))
    monkeypatch.undo()
    again = acme.post("/v1/transactions", json=WANTED, headers=with_key("died"))
    assert kind_of(again) == (409, "idempotency-key-in-use")
    assert again.json()["retryable"] and int(again.headers["Retry-After"]) > 0
    house.kit.advance(seconds=HOLD_S + 1)
    again = acme.post("/v1/transactions", json=WANTED, headers=with_key("died"))
    assert (again.status_code, again.json()["txId"]) == (200, first.json()["txId"])
    same = acme.post("/v1/transactions/bulk", json=bulk, headers=with_key("died-2"))
    ids = [each["txId"] for each in many.json()["results"]]
    assert same.status_code == 200 and [each["txId"] for each in same.json()["results"]] == ids
    assert count(acme) == 3


def test_what_was_searched_for_does_not_rest_under_a_key(
    house: ApiHouse, ops: httpx.Client
) -> None:
    where = {"attributes": {"customer": "ann-of-cleves"}}
    for _ in range(2):
        body = {"action": "wake", "where": where}
        seen = ops.post("/v1/bulk-actions/preview", json=body, headers=with_key("seen"))
        assert (seen.status_code, seen.json()["count"]) == (200, 0)
    assert "idempotency_key" not in places_with(house.kit, "ann-of-cleves")


def test_a_request_that_takes_longer_than_the_hold_keeps_its_key(
    house: ApiHouse, ops: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock passes the hold while the first one works; the second must not begin."""
    monkeypatch.setattr(once, "RENEW_S", 0.02)
    begun, may_end, runs = threading.Event(), threading.Event(), []

    def slow(*_: Any, **__: Any) -> list[Any]:
        runs.append(1)
        begun.set()
        assert may_end.wait(10)
        return []

    monkeypatch.setattr(type(house.services.operator), "act_on_many", slow)
    where = {"pipeline": "nothing-is-called-so"}
    body = {"action": "wake", "where": where, "expectedCount": 0, "selection": selection_of(())}
    body["reason"] = "slow"

    def post() -> httpx.Response:
        return ops.post("/v1/bulk-actions", json=body, headers=with_key("slow"))

    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(post)
        try:
            assert begun.wait(10)
            for _ in range(3):
                house.kit.advance(seconds=HOLD_S / 2)
                held = _held_until(house.kit)
                eventually(partial(_is_renewed, house.kit, held))
            second = post()
        finally:
            may_end.set()
        done = first.result()
    assert kind_of(second) == (409, "idempotency-key-in-use")
    assert (done.status_code, len(runs)) == (200, 1)
    again = post()
    assert again.headers["Idempotent-Replayed"] == "true" and again.content == done.content


def _is_renewed(kit: Kit, held: Any) -> bool:
    return bool(_held_until(kit) > held)


def _held_until(kit: Kit) -> Any:
    with kit.connections.engine.connect() as sql:
        query = "SELECT held_until FROM idempotency_key WHERE key = 'slow'"
        return sql.exec_driver_sql(query).scalar_one()


@pytest.fixture
def keys(kit: Kit) -> IdempotencyKeys:
    return IdempotencyKeys(kit.connections.engine, kit.connections.clock)


def begun(found: Any) -> KeyTaken:
    assert isinstance(found, KeyTaken)
    return found


def test_the_one_who_comes_back_late_does_not_overwrite_the_answer(
    kit: Kit, keys: IdempotencyKeys
) -> None:
    late = begun(keys.begin("late", "k", "h"))
    assert isinstance(keys.begin("late", "k", "h"), KeyInUse)
    kit.advance(seconds=HOLD_S + 1)
    second = begun(keys.begin("late", "k", "h"))
    keys.keep(second, KeptAnswer(202, (), "second", None))
    keys.keep(late, KeptAnswer(202, (), "late", None))
    keys.release(late)
    assert not keys.renew(late)
    assert keys.begin("late", "k", "h") == KeptAnswer(202, (), "second", None)


def test_a_key_counts_for_a_day_and_is_then_dropped(kit: Kit, keys: IdempotencyKeys) -> None:
    keys.keep(begun(keys.begin("day", "k", "h")), KeptAnswer(200, (), "x", None))
    kit.advance(seconds=(KEEP_HOURS - 1) * 3_600)
    assert isinstance(keys.begin("day", "k", "h"), KeptAnswer)
    keys.drop_old(rows_max=1_000)
    assert isinstance(keys.begin("day", "k", "h"), KeptAnswer)
    kit.advance(seconds=3_601)
    begun(keys.begin("day", "k", "other"))
    kit.advance(seconds=(KEEP_HOURS + 1) * 3_600)
    # The retention job has dropped it.
    with kit.connections.engine.connect() as sql:
        found = sql.exec_driver_sql("SELECT 1 FROM idempotency_key WHERE owner = 'day'").all()
    assert found == []


def test_a_renewal_whose_answer_was_lost_leaves_the_key_with_its_request(
    kit: Kit, keys: IdempotencyKeys
) -> None:
    first = begun(keys.begin("lost", "k", "h"))
    kit.advance(seconds=HOLD_S / 2)
    # Done by PostgreSQL; the request that holds the key has not heard of it.
    keys.renew(first)
    assert keys.renew(first)
    assert keys.keep(first, KeptAnswer(202, (), "first", None))
    assert keys.begin("lost", "k", "h") == KeptAnswer(202, (), "first", None)
    again = begun(keys.begin("lost", "k2", "h"))
    keys.renew(again)
    keys.release(again)
    begun(keys.begin("lost", "k2", "h"))


def test_an_answer_that_is_not_kept_is_logged(
    acme: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(IdempotencyKeys, "keep", lambda *_: False)
    acme.post("/v1/transactions", json=WANTED, headers=with_key("unkept"))
    assert "another request has taken over" in caplog.text
