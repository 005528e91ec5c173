"""What clients send can be anything: too large, too slow, too deep, not JSON, not ours."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.api_house import ApiHouse

SETTINGS = {"input_bytes_max": 20_000}
CONSTANTS = {
    "api.routing.BODY_READ_S": 0.5,
    "api.bulk_submit.BULK_BYTES_MAX": 200_000,
    "api.bulk_transfers.BULK_BYTES_MAX": 200_000,
}


def refused(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = dict(answer.json())
    assert (found["status"], found["type"]) == (status, f"urn:datp:problem:{kind}")
    assert found["detail"] and found["title"]
    return found


def post(client: httpx.Client, content: Any, **headers: str) -> httpx.Response:
    headers = {"Content-Type": "application/json", **headers}
    return client.post("/v1/transactions", content=content, headers=headers)


BOMBS = {
    "nested lists": b'{"pipeline":"echo","input":{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}}",
    "nested objects": b'{"pipeline":"echo","input":' + b'{"a":' * 9_000 + b"1" + b"}" * 9_001,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_body_that_is_nested_too_deeply_is_refused(acme: httpx.Client, bomb: bytes) -> None:
    refused(post(acme, bomb), 400, "not-json")
    assert acme.get("/healthz").status_code == 200


def test_data_that_is_nested_a_little_too_deeply_is_refused(acme: httpx.Client) -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    answer = acme.post("/v1/transactions", json={"pipeline": "echo", "input": {"a": deep}})
    refused(answer, 422, "input-invalid")


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        (b"", 422, "request-invalid"),
        (b"{", 400, "not-json"),
        (b"\xff\xfe", 400, "not-json"),
        (b'{"pipeline":"echo","input":{"n":NaN}}', 400, "not-json"),
        (b'{"pipeline":"echo","input":{"n":-Infinity}}', 400, "not-json"),
        (b'{"pipeline":"echo","input":{"n":1e999}}', 422, "input-invalid"),
        (b'{"pipeline":"echo","input":{},"expiresInSeconds":1e999}', 422, "request-invalid"),
        (b'{"pipeline":"echo","input":{"n":' + b"9" * 5_000 + b"}}", 400, "not-json"),
        (b'{"pipeline":"echo","input":{"a":1,"a":2}}', 400, "not-json"),
        (b'{"pipeline":"echo","pipeline":"nap","input":{}}', 400, "not-json"),
        (b'{"pipeline":"echo","input":{"a":"\\u0000"}}', 422, "input-invalid"),
        (b'{"pipeline":"echo","input":{"a":"\\ud800"}}', 422, "input-invalid"),
        (b'{"pipeline":"ec\\u0000ho","input":{}}', 422, "request-invalid"),
        (b'{"pipeline":"\\ud800","input":{}}', 422, "request-invalid"),
        (b'{"pipeline":"echo","input":[]}', 422, "request-invalid"),
        (b'{"pipeline":"echo","input":{},"externalId":7}', 422, "request-invalid"),
        (b'{"pipeline":"echo","input":{},"externalId":"a b"}', 422, "external-id-invalid"),
        (b'{"pipeline":"echo","input":{},"progressReports":"yes"}', 422, "request-invalid"),
        (b'{"pipeline":"echo","input":{},"owner":"zeta"}', 422, "request-invalid"),
        (b'{"pipeline":"echo","input":{},"expiresInSeconds":-1}', 422, "expiry-invalid"),
        (b'{"pipeline":"nobody-knows","input":{}}', 422, "pipeline-unknown"),
        (b"[]", 422, "request-invalid"),
        (b"null", 422, "request-invalid"),
    ],
)
def test_what_is_not_a_request_is_refused_with_a_reason(
    acme: httpx.Client, content: bytes, status: int, kind: str
) -> None:
    refused(post(acme, content), status, kind)


def test_each_mistake_is_named_with_its_place(acme: httpx.Client) -> None:
    found = refused(post(acme, b'{"input":{},"extra":1}'), 422, "request-invalid")
    assert sorted(each["pointer"] for each in found["errors"]) == [
        "#/body/extra",
        "#/body/pipeline",
    ]


def said_to(house: ApiHouse, *headers: str) -> bytes:
    """What is answered to the head of a request whose body never comes."""
    host, port = house.url.removeprefix("http://").split(":")
    lines = ("POST /v1/transactions HTTP/1.1", "Host: x", "Content-Type: application/json")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall("\r\n".join((*lines, *headers, "", "")).encode())
        answer = b""
        while not answer.endswith(b"}"):
            more = sock.recv(65_536)
            assert more, answer
            answer += more
        return answer


def test_a_body_that_says_it_is_too_large_is_not_read(house: ApiHouse) -> None:
    key = house.new_key("large")
    answer = said_to(house, f"Authorization: Bearer {key}", "Content-Length: 200000")
    assert b" 413 " in answer.split(b"\r\n")[0]
    assert b"urn:datp:problem:too-large" in answer


def test_a_body_that_does_not_say_how_large_it_is_is_read_only_up_to_the_limit(
    acme: httpx.Client,
) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'{"pipeline":"echo","input":{"a":"'
        for _ in range(2_000):
            sent += 65_536
            yield b"x" * 65_536

    # The connection may be closed while we are still sending, which is the point.
    with contextlib.suppress(httpx.WriteError):
        refused(post(acme, endless()), 413, "too-large")
    assert sent < 20_000_000


def test_a_body_that_drips_is_given_up(house: ApiHouse) -> None:
    key = house.new_key("drip")
    began_s = time.monotonic()
    answer = said_to(house, f"Authorization: Bearer {key}", "Content-Length: 1000")
    assert b" 408 " in answer.split(b"\r\n")[0]
    assert b"urn:datp:problem:too-slow" in answer
    assert time.monotonic() - began_s < 5


def test_a_stranger_is_refused_before_his_body_is_read(house: ApiHouse) -> None:
    answer = said_to(house, "Authorization: Bearer nonsense", "Content-Length: 1000")
    assert b" 401 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
def test_a_body_that_is_not_declared_as_json_is_refused(acme: httpx.Client, kind: str) -> None:
    content = json.dumps({"pipeline": "echo", "input": {}}).encode()
    refused(post(acme, content, **{"Content-Type": kind}), 415, "not-json")


def test_a_compressed_body_is_refused(acme: httpx.Client) -> None:
    refused(post(acme, b"x", **{"Content-Encoding": "gzip"}), 415, "encoded")


def test_what_is_not_there_is_a_problem_document_too(acme: httpx.Client) -> None:
    refused(acme.get("/v1/nothing"), 404, "not-found")
    refused(acme.get("/v1/transactions/"), 404, "not-found")
    refused(acme.get("/v1/transactions/nonsense"), 404, "not-found")
    refused(acme.get("/v1/transactions/a%00b"), 400, "request-invalid")
    refused(acme.get("/v1/transactions?externalId=%00"), 400, "request-invalid")
    wrong = acme.delete("/v1/transactions")
    refused(wrong, 405, "method-not-allowed")
    assert set(wrong.headers["allow"].split(", ")) == {"GET", "POST"}


def test_a_mistake_of_ours_is_shown_without_its_inside(
    house: ApiHouse, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret inside")

    monkeypatch.setattr(house.services.transactions.listing, "page", broken)
    found = refused(acme.get("/v1/transactions"), 500, "internal-error")
    assert "secret" not in json.dumps(found)
    assert found["errorId"] in found["detail"]
    assert "secret inside" in caplog.text and found["errorId"] in caplog.text
