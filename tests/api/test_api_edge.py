"""Before a key is looked at, and after: no client takes what others need."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import httpx
import pytest

from datp_tasks.api import access, door
from datp_tasks.api.shares import Shares
from datp_tasks.errors import DatabaseUnavailable
from datp_tasks.model.actor import LOCAL, Actor, Role
from datp_tasks.model.grants import Grants
from datp_tasks.record.api_keys import ApiKeys, OwnerLimits
from datp_tasks.runtime.api import THREADS_MAX
from datp_tasks.testing import Kit
from tests.api.test_api_bodies import refused
from tests.api.test_api_transactions import submitted
from tests.support.api_house import PEPPER, ApiHouse, api_house
from tests.support.eventually import eventually
from tests.support.ledger_world import payload_of

SETTINGS = {"bodies_bytes_max": 400_000}
CONSTANTS = {
    "api.routing.BODY_READ_S": 0.5,
    "api.bulk_submit.BULK_BYTES_MAX": 300_000,
    "api.bulk_transfers.BULK_BYTES_MAX": 300_000,
    "api.waiting.WAITERS_MAX": 8,
}


def connected(house: ApiHouse) -> socket.socket:
    host, port = house.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def told(sock: socket.socket) -> bytes:
    """Everything until the server closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while more := sock.recv(65_536):
            found += more
    return found


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def sent(house: ApiHouse, text: bytes) -> bytes:
    with connected(house) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(text)
        return told(sock)


HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


def test_a_head_that_is_too_large_is_refused_and_the_connection_closed(house: ApiHouse) -> None:
    long_url = b"GET /healthz?" + b"x" * 10_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    many = b"".join(b"x-%d: 1\r\n" % n for n in range(200))
    for text, code in (
        (long_url, 414),
        (HEAD + b"x: " + b"y" * 40_000 + b"\r\n\r\n", 431),
        (HEAD + many + b"\r\n", 431),
    ):
        answer = sent(house, text)
        assert status(answer) == code, answer[:300]
        assert b"connection: close" in answer and b"urn:datp:problem:too-large" in answer
    # Without an end, nothing of it is kept.
    for start in (b"GET /" + b"x" * 100_000, HEAD + b"x: " + b"y" * 100_000):
        assert status(sent(house, start)) == 431


def test_a_head_that_drips_is_given_up(house: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HEAD_S", 0.3)
    ok = HEAD + b"\r\n"
    with connected(house) as silent, connected(house) as half, connected(house) as second:
        half.sendall(HEAD)
        second.sendall(ok)
        assert b" 200 " in second.recv(65_536)
        # Empty lines do not keep a connection.
        second.sendall(b"\r\n")
        assert [status(told(each)) for each in (silent, half, second)] == [408] * 3


def test_an_address_has_half_of_the_connections_at_most(kit: Kit) -> None:
    settings = replace(kit.settings, api_connections_max=40)
    with api_house(kit, settings) as house, contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(house)) for _ in range(40)]
        codes = []
        for each in socks:
            with contextlib.suppress(ConnectionError):
                each.sendall(HEAD + b"\r\n")
                codes.append(status(each.recv(65_536)))
        assert codes.count(200) == 20 and 503 in codes
        # Another address of this machine finds a place.
        host, port = house.url.removeprefix("http://").split(":")
        other = socket.create_connection((host, int(port)), 10, source_address=("127.0.0.2", 0))
        stack.enter_context(other)
        other.sendall(HEAD + b"\r\n")
        assert status(other.recv(65_536)) == 200
        for each in socks:
            each.close()
        client = house.client()
        eventually(lambda: client.get("/healthz").status_code == 200)


def test_the_rest_of_a_body_that_is_not_needed_does_not_hold_a_connection(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "REST_S", 0.3)
    with connected(house) as sock:
        sock.sendall(b"POST /v1/transactions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        assert status(sock.recv(65_536)) == 401
        began_s = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began_s < 10:
                sock.sendall(b"x")
                sock.settimeout(0.1)
                with contextlib.suppress(TimeoutError):
                    if not sock.recv(10):
                        break
        assert time.monotonic() - began_s < 8


@pytest.mark.parametrize("with_key", [True, False])
@pytest.mark.parametrize("start", [b"0\r\nx: ", b"1;x="], ids=["trailer", "chunk extension"])
def test_what_is_no_body_behind_the_head_is_bounded_like_the_head(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch, start: bytes, with_key: bool
) -> None:
    monkeypatch.setattr(door, "REST_S", 60.0)
    key = house.new_key(house.new_owner("chunks")) if with_key else "datp_wrong"
    head = (
        "POST /v1/transactions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    began_s = time.monotonic()
    written = 0
    with connected(house) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(head.encode() + start)
        while written < 100_000_000:
            sock.sendall(b"y" * 10_000)
            written += 10_000
            assert time.monotonic() - began_s < 20
    # What the kernel takes in before it knows that the server has closed is not the server's.
    assert written < 20_000_000


def test_a_trailer_is_not_taken_for_a_header(house: ApiHouse) -> None:
    key = house.new_key(house.new_owner("trailer"))
    text = b'{"pipeline":"echo","input":{}}'
    answer = sent(
        house,
        (
            "POST /v1/transactions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Authorization: Bearer {key}\r\nTransfer-Encoding: chunked\r\n\r\n"
            f"{len(text):x}\r\n{text.decode()}\r\n0\r\nContent-Type: application/json\r\n\r\n"
        ).encode(),
    )
    assert status(answer) == 415


def test_requests_that_wait_for_no_answer_are_few(house: ApiHouse) -> None:
    last = HEAD + b"Connection: close\r\n\r\n"
    few = sent(house, (HEAD + b"\r\n") * 20 + last)
    assert few.count(b"HTTP/1.1 200") == 21
    many = sent(house, (HEAD + b"\r\n") * 200 + last)
    assert many.count(b"HTTP/1.1 200") < 40


def test_a_client_that_does_not_read_its_answers_is_cut_off(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "STUCK_S", 0.5)
    inside = house._app.state.door.inside
    before = set(inside)
    get = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(house) as sock:
        # As many as may wait: together they are more than the kernel takes.
        sock.sendall(get * door.PIPELINED_MAX)
        eventually(lambda: any(each.flow.write_paused for each in inside - before))
        eventually(lambda: not inside - before, within_s=10)


def test_a_body_that_is_too_slow_closes_its_connection(house: ApiHouse) -> None:
    key = house.new_key("slow")
    head = f"POST /v1/transactions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    answer = sent(house, head.encode() + b"Content-Length: 10\r\n\r\n")
    assert (status(answer), b"connection: close" in answer.lower()) == (408, True)


def test_a_client_that_goes_in_the_middle_of_its_body_is_no_error(
    house: ApiHouse, caplog: pytest.LogCaptureFixture
) -> None:
    key = house.new_key("gone")
    for path in ("/v1/transactions", "/v1/transactions/bulk"):
        with connected(house) as sock:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
            sock.sendall(head.encode() + b"Content-Length: 100\r\n\r\n{")
            eventually(lambda: house.services.admission.body_bytes.used > 0)
        eventually(lambda: house.services.admission.body_bytes.used == 0)
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_many_query_parameters_are_refused_and_one_that_comes_twice(acme: httpx.Client) -> None:
    many = "&".join(f"a{n}=1" for n in range(60))
    refused(acme.get(f"/v1/transactions?{many}"), 400, "request-invalid")
    wanted = {"pipeline": "echo", "input": {}}
    found = refused(acme.post("/v1/transactions?a=1&b=2&a=3", json=wanted), 422, "request-invalid")
    assert found["errors"][0]["pointer"] == "#/query/a"


# Keys.


def test_made_up_keys_are_refused_without_asking_the_record(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    verify = house.services.callers.keys.verify

    def noted(text: str) -> Any:
        asked.append(text)
        return verify(text)

    monkeypatch.setattr(house.services.callers.keys, "verify", noted)
    right = house.new_key("made")
    flipped = right[:30] + ("A" if right[30] != "A" else "B") + right[31:]
    for key in ("nonsense", right[:-1], flipped, right + "x", f"datp_{'0' * 16}_{right[22:]}"):
        assert house.client(key=key).get("/v1/transactions").status_code == 401
    assert asked == []
    assert house.client(key=right).get("/v1/transactions").status_code == 200
    assert asked == [right]


def test_a_key_that_followed_is_good_without_the_pepper_that_made_it(
    house: ApiHouse, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is of a pepper that no process knows any more."""
    engine, clock, before = kit.connections.engine, kit.clock, "the pepper before, long enough too"
    made = ApiKeys(engine, clock, before)
    key, unused = (made.create("moved", actor=LOCAL).text for _ in range(2))
    assert ApiKeys(engine, clock, PEPPER, before).verify(key) is not None
    reads: list[frozenset[str]] = []
    followed = house.services.callers.keys.followed

    def noted() -> frozenset[str]:
        reads.append(followed())
        return reads[-1]

    monkeypatch.setattr(house.services.callers.keys, "followed", noted)
    monkeypatch.setattr(house.services.admission.gate, "_followed_until_s", 0.0)
    assert house.client(key=key).get("/v1/transactions").status_code == 200
    assert house.client(key=unused).get("/v1/transactions").status_code == 401
    made_up = f"datp_{'0' * 16}_{key[22:]}"
    for _ in range(5):
        assert house.client(key=made_up).get("/v1/transactions").status_code == 401
    assert len(reads) == 1
    # In an outage what was read before counts, and is read again later.
    failed: list[int] = []

    def away() -> frozenset[str]:
        failed.append(1)
        raise DatabaseUnavailable("PostgreSQL is unavailable")

    gate = house.services.admission.gate
    monkeypatch.setattr(house.services.callers.keys, "followed", away)
    monkeypatch.setattr(gate, "_followed_until_s", 0.0)
    for _ in range(3):
        assert house.client(key=made_up).get("/v1/transactions").status_code == 401
    assert len(failed) == 1 and key.split("_")[1] in (gate._followed or ())
    # Before the first answer it is not known which keys are wrong.
    monkeypatch.setattr(gate, "_followed", None)
    assert house.client(key=made_up).get("/v1/transactions").status_code == 503
    made.revoke(key.split("_")[1], actor=LOCAL)
    assert key.split("_")[1] not in followed()


def test_request_ids_cannot_be_counted(house: ApiHouse) -> None:
    client = house.client(key=house.new_key("counting"))
    found = [client.get("/v1/transactions").headers["request-id"] for _ in range(4)]
    numbers = [int(each.removeprefix("req_"), 16) for each in found]
    # Neither the last digits nor the first ones go on from the one before.
    assert all(a >> 48 != b >> 48 and abs(a - b) % 2**32 > 8 for a, b in pairwise(numbers))


def test_a_key_from_before_there_was_a_check_is_good(house: ApiHouse, kit: Kit) -> None:
    new = house.new_key("old")
    old = new[:-8]
    with kit.connections.engine.begin() as sql:
        sql.exec_driver_sql(
            "UPDATE api_key SET secret_hash = %s WHERE id = %s",
            (house.keys.hash(old), old.split("_")[1]),
        )
    assert house.client(key=old).get("/v1/transactions").status_code == 200


def test_an_address_with_many_wrong_keys_is_held_back_and_good_keys_are_not(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "FAILURES_MAX", 5)
    monkeypatch.setattr(access, "FAILURES_PER_S", 0.01)
    with api_house(kit) as house:
        good, wrong = house.client("good"), house.client(key="datp_wrong")
        assert good.get("/v1/transactions").status_code == 200
        codes = [wrong.get("/v1/transactions").status_code for _ in range(8)]
        assert codes == [401] * 5 + [429] * 3
        last = wrong.get("/v1/transactions")
        assert int(last.headers["retry-after"]) > 1 and last.headers["connection"] == "close"
        # Also after its key was forgotten here.
        time.sleep(kit.settings.key_cache_s)
        assert good.get("/v1/transactions").status_code == 200


def test_slow_queries_do_not_keep_keys_from_being_looked_up(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor, as owners take turns, the lists of others."""
    go = threading.Event()
    page = house.services.transactions.listing.page
    slow = house.new_owner("slow")

    def held(wanted: Any) -> Any:
        if wanted.owner == slow:
            go.wait(20)
        return page(wanted)

    monkeypatch.setattr(house.services.transactions.listing, "page", held)
    slow_key = house.new_key(slow)
    threads = THREADS_MAX
    with ThreadPoolExecutor(threads + 4) as pool:
        clients = [house.client(key=slow_key) for _ in range(threads + 4)]
        waiting = [pool.submit(each.get, "/v1/transactions") for each in clients]
        try:
            eventually(lambda: sum(house.services.threads._turns._running.values()) >= 4)
            began_s = time.monotonic()
            other = house.client(house.new_owner("other"))
            assert other.get("/v1/transactions").status_code == 200
            assert submitted(other)
            assert house.client().get("/readyz").status_code == 200
            prometheus = house.client("prometheus", Role.VIEWER)
            assert prometheus.get("/metrics").status_code == 200
            assert time.monotonic() - began_s < 10
        finally:
            go.set()
        assert [each.result(30).status_code for each in waiting] == [200] * (threads + 4)


def test_when_all_threads_are_held_keys_are_still_looked_up(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By two owners, since one has never all of them."""
    go = threading.Event()
    page = house.services.transactions.listing.page

    def held(wanted: Any) -> Any:
        go.wait(20)
        return page(wanted)

    monkeypatch.setattr(house.services.transactions.listing, "page", held)
    threads = THREADS_MAX
    slow = [house.client(house.new_owner("slow")) for _ in range(2) for _ in range(threads)]
    for each in slow[:threads]:
        each.headers["Authorization"] = slow[0].headers["Authorization"]
    unknown = house.new_key("unknown")
    house.keys.revoke(unknown.split("_")[1], actor=LOCAL)
    with ThreadPoolExecutor(len(slow)) as pool:
        waiting = [pool.submit(each.get, "/v1/transactions") for each in slow]
        try:
            running = house.services.threads._turns._running
            eventually(lambda: sum(running.values()) == threads)
            assert house.client(key=unknown).get("/v1/step-types").status_code == 401
            assert house.client().get("/readyz").status_code == 200
            assert not any(each.done() for each in waiting)
        finally:
            go.set()
        assert {each.result(30).status_code for each in waiting} == {200}


# Per owner.


def test_one_alone_has_half_and_the_next_always_finds_something() -> None:
    shares = Shares(16, what="things")
    got = {name: 0 for name in "abcd"}
    for name in got:
        while shares.take(name):
            got[name] += 1
    assert got == {"a": 8, "b": 4, "c": 2, "d": 1}
    for name, count in got.items():
        for _ in range(count):
            shares.give_back(name)
    assert shares.used == 0 and shares.take("a", 16) and not shares.take("b", 1)


def test_an_owner_leaves_long_polls_to_others(
    house: ApiHouse, acme: httpx.Client, zeta: httpx.Client
) -> None:
    mine, theirs = submitted(acme, "nap"), submitted(zeta, "nap")
    with ThreadPoolExecutor(8) as pool:
        for n in range(1, 5):
            pool.submit(acme.get, f"/v1/transactions/{mine}", params={"wait": 20})
            eventually(lambda n=n: len(house.services.waits.polls) == n)  # type: ignore[misc]
        fifth = acme.get(f"/v1/transactions/{mine}", params={"wait": 20})
        assert "retry-after" in fifth.headers
        refused(fifth, 429, "limited")
        other = pool.submit(zeta.get, f"/v1/transactions/{theirs}", params={"wait": 20})
        eventually(lambda: len(house.services.waits.polls) == 5)
        for tx_id in (mine, theirs):
            house.kit.client.set_switch(tx_id, "go", True)
        assert other.result(30).status_code == 200


def test_bodies_of_an_owner_leave_room_for_those_of_others(house: ApiHouse) -> None:
    owner = house.new_owner("large")
    key = house.new_key(owner)
    head = f"POST /v1/transactions/bulk HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    with connected(house) as sock:
        sock.sendall(head.encode() + b"Content-Length: 200000\r\n\r\n")
        eventually(lambda: house.services.admission.body_bytes.used == 200_000)
        second = sent(house, head.encode() + b"Content-Length: 200000\r\n\r\n")
        assert status(second) == 429 and b"retry-after" in second.lower()
        assert submitted(house.client(house.new_owner("small")))
        assert status(told(sock)) == 408
    eventually(lambda: house.services.admission.body_bytes.used == 0)


def test_batches_count_as_in_flight(house: ApiHouse) -> None:
    owner = house.new_owner("batches")
    house.keys.set_limits(owner, OwnerLimits(in_flight_max=1), actor=Actor(name="ann"))
    ledger = house.kit.connections.ledger
    ledger.intake.add_service("s", kind="sawtooth", url="http://localhost:8008")
    grants = Grants.parse(["submit:*", "read", "batch:s"])
    client = house.client(key=house.new_key(owner, grants=grants))
    submitted(client, "nap")
    payload = base64.b64encode(payload_of("ab" * 64)).decode()
    answer = client.post("/v1/batches", json={"service": "s", "payload": payload})
    refused(answer, 429, "limited")


# What was accepted is found.


def test_what_was_accepted_is_found_although_the_owner_is_at_its_limit(house: ApiHouse) -> None:
    owner = house.new_owner("full")
    house.keys.set_limits(owner, OwnerLimits(in_flight_max=1), actor=Actor(name="ann"))
    client = house.client(owner)
    wanted = {"pipeline": "nap", "input": {"n": 1}, "externalId": "pay-1"}
    first = client.post("/v1/transactions", json=wanted)
    assert first.status_code == 202
    again = client.post("/v1/transactions", json=wanted)
    assert (again.status_code, again.json()["txId"]) == (200, first.json()["txId"])
    other = {**wanted, "input": {"n": 2}}
    refused(client.post("/v1/transactions", json=other), 409, "external-id-conflict")
    fresh = {**wanted, "externalId": "pay-2"}
    refused(client.post("/v1/transactions", json=fresh), 429, "limited")
    bulk = client.post("/v1/transactions/bulk", json={"transactions": [wanted, other, fresh]})
    assert [each["status"] for each in bulk.json()["results"]] == [200, 409, 429]


def test_a_body_that_does_not_fit_is_another_request(acme: httpx.Client) -> None:
    wanted = {"pipeline": "echo", "input": {}, "externalId": "pay-1"}
    assert acme.post("/v1/transactions", json=wanted).status_code == 202
    wrong = {**wanted, "input": []}
    refused(acme.post("/v1/transactions", json=wrong), 409, "external-id-conflict")
    bulk = acme.post("/v1/transactions/bulk", json={"transactions": [wrong]})
    assert [each["status"] for each in bulk.json()["results"]] == [409]
    unused = {**wrong, "externalId": "pay-2"}
    refused(acme.post("/v1/transactions", json=unused), 422, "request-invalid")


# Numbers and events.


@pytest.mark.parametrize("number", ["12345678901234567.89", "0.12345678901234567890", "1e-400"])
def test_a_number_that_would_change_is_refused_with_its_place(
    acme: httpx.Client, number: str
) -> None:
    text = f'{{"pipeline":"echo","input":{{"to":[{{"amount":{number}}}]}}}}'
    headers = {"Content-Type": "application/json"}
    answer = acme.post("/v1/transactions", content=text, headers=headers)
    found = refused(answer, 422, "input-invalid")
    assert found["errors"][0]["pointer"] == "#/body/input/to/0/amount"
    assert number in found["detail"]
    tx_id = submitted(acme, "nap")
    path = f"/v1/transactions/{tx_id}/switches/go"
    answer = acme.put(path, content=f'{{"value":{number}}}', headers=headers)
    refused(answer, 422, "request-invalid")


def test_a_number_that_stays_the_same_goes_through(acme: httpx.Client) -> None:
    data = '{"a":0.1,"b":1.10,"c":1E2,"d":123456789012345678901234567890,"e":-0.5}'
    answer = acme.post(
        "/v1/transactions",
        content=f'{{"pipeline":"echo","input":{data}}}',
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 202
    shown = acme.get(f"/v1/transactions/{answer.json()['txId']}").json()
    assert shown["input"] == json.loads(data)


def test_events_come_in_pages_and_none_is_missing(house: ApiHouse, acme: httpx.Client) -> None:
    tx_id = submitted(acme)
    with house.kit.connections.engine.begin() as sql:
        sql.exec_driver_sql("UPDATE tx_summary SET event_count = 1200 WHERE tx_id = %s", (tx_id,))
        sql.exec_driver_sql(
            "INSERT INTO tx_event (tx_id, sequence, kind, payload, created_at) "
            "SELECT %s, n, 'progress', '{}', now() FROM generate_series(1, 1200) n",
            (tx_id,),
        )
    found: list[int] = []
    params: dict[str, str] = {}
    pages, has_more = 0, True
    while has_more:
        page = acme.get(f"/v1/transactions/{tx_id}/events", params=params).json()
        found += [each["sequence"] for each in page["events"]]
        has_more, params = page["hasMore"], {"cursor": page["nextCursor"] or ""}
        pages += 1
    assert (found, pages, page["events"][-1]["kind"]) == (list(range(1, 1202)), 2, "final")
