"""http/request against a real HTTP server on this machine."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from datp_tasks.engine.builtin.http_params import request_url
from datp_tasks.engine.builtin.http_request import (
    RESPONSE_BYTES_MAX,
    NoAnswer,
    UnexpectedResponse,
    http_request,
)
from datp_tasks.model.outcome import Fail
from tests.engine.builtin_context import HandMadeContext, mistakes


class Service(ThreadingHTTPServer):
    """Answers by path and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.server.asked.append(
            {
                "method": self.command,
                "path": self.path,
                "headers": {name.lower(): text for name, text in self.headers.items()},
                "body": self.rfile.read(length).decode(),
            }
        )
        kind, _, argument = self.path.partition("?")[0].lstrip("/").partition("/")
        getattr(self, f"answer_{kind}", self.answer_json)(argument)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def answer_json(self, _: str) -> None:
        self.send(200, b'{"rate": "1.25", "big": 12345678901234567890}')

    def answer_status(self, status: str) -> None:
        self.send(int(status), b'{"error": "because"}')

    def answer_empty(self, _: str) -> None:
        self.send(204, b"")

    def answer_text(self, _: str) -> None:
        self.send(200, "grüße".encode(), "text/plain; charset=utf-8")

    def answer_broken(self, _: str) -> None:
        self.send(200, b'{"a": NaN}')

    def answer_binary(self, _: str) -> None:
        self.send(200, b"\xff\xfe", "application/octet-stream")

    def answer_long(self, extra: str) -> None:
        self.send(200, b" " * (RESPONSE_BYTES_MAX + int(extra)), "text/plain")

    def answer_gzip(self, _: str) -> None:
        self.send(200, b"whatever", extra={"Content-Encoding": "gzip"})

    def answer_redirect(self, _: str) -> None:
        self.send(302, b"", extra={"Location": "/json"})

    def answer_cookie(self, _: str) -> None:
        self.send(200, b"{}", extra={"Set-Cookie": "session=1"})

    def answer_drip(self, _: str) -> None:
        """One byte now and then: each of them is in time, all of them are not."""
        self.send_response(200)
        self.end_headers()
        while not self.server.release.wait(0.05):
            self.wfile.write(b".")
            self.wfile.flush()

    def answer_never(self, _: str) -> None:
        self.server.release.wait(30)

    def answer_cut(self, _: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"{")

    def send(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        extra: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, text in (extra or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        # A client that gives up in the middle is what some tests are about.
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


def ask(url: str, data: dict[str, Any] | None = None, **params: Any) -> Any:
    params = {"url": url, **params}
    assert mistakes(http_request, **params) == []
    ctx = HandMadeContext(params=params)
    return asyncio.run(http_request(ctx, {} if data is None else data))


def test_the_answer_goes_into_a_field_beside_the_input(service: Service) -> None:
    answer = {"status": 200, "body": {"rate": "1.25", "big": 12345678901234567890}}
    assert ask(service.url, {"a": 1}) == {"a": 1, "response": answer}
    assert ask(service.url, into="rates") == {"rates": answer}


def test_the_idempotency_key_is_sent_and_nothing_surprising(service: Service) -> None:
    ask(f"{service.url}/json")
    (asked,) = service.asked
    assert asked["method"] == "GET"
    assert asked["body"] == ""
    assert asked["headers"]["idempotency-key"] == "tx-1/2"
    assert asked["headers"]["accept-encoding"] == "identity"
    assert asked["headers"]["user-agent"] == "datp-tasks"


def test_the_body_is_the_data_or_an_object_with_templates(service: Service) -> None:
    data = {"n": 12345678901234567890, "who": {"name": "Ann"}}
    ask(service.url, data, method="POST", body="data")
    ask(service.url, data, method="PUT", body={"count": "{{n}}", "text": "hi {{who.name}}"})
    bodies = [json.loads(asked["body"]) for asked in service.asked]
    assert bodies == [data, {"count": 12345678901234567890, "text": "hi Ann"}]
    assert [asked["method"] for asked in service.asked] == ["POST", "PUT"]
    assert service.asked[0]["headers"]["content-type"] == "application/json"


def test_values_in_the_address_cannot_leave_their_place(service: Service) -> None:
    data = {"id": "a/b?c=d#e&f ü", "q": "1&admin=true"}
    ask(f"{service.url}/json/{{{{id}}}}/end", data, query={"q": "{{q}}", "page": 2})
    path, _, query = service.asked[0]["path"].partition("?")
    assert path == "/json/a%2Fb%3Fc%3Dd%23e%26f%20%C3%BC/end"
    assert query == "q=1%26admin%3Dtrue&page=2"


@pytest.mark.parametrize(
    ("template", "query", "url"),
    [
        ("https://x:8443/a", {}, "https://x:8443/a"),
        ("http://bücher.example:81/ü b", {}, "http://xn--bcher-kva.example:81/%C3%BC%20b"),
        ("http://straße.de/", {}, "http://xn--strae-oqa.de/"),
        ("http://x/%2F/100%?q=50%", {}, "http://x/%2F/100%25?q=50%25"),
        ("http://x/a?b=1&c=2&b=3", {"b": "ü &"}, "http://x/a?b=%C3%BC+%26&c=2"),
        ("http://[::1]:8/a", {"b": ""}, "http://[::1]:8/a?b="),
    ],
)
def test_what_the_author_did_not_escape_is_escaped(
    template: str, query: dict[str, str], url: str
) -> None:
    assert request_url(template, {}, query) == url


@pytest.mark.parametrize("value", ["..", "."])
def test_a_value_that_climbs_in_the_path_fails(service: Service, value: str) -> None:
    with pytest.raises(Fail, match="the path would hold"):
        ask(f"{service.url}/json/{{{{id}}}}/x", {"id": value})
    assert service.asked == []


def test_headers_have_templates_but_no_line_breaks(service: Service) -> None:
    ask(service.url, {"b": "7"}, headers={"X-Branch": "no {{b}}", "accept": "text/plain"})
    assert service.asked[0]["headers"]["x-branch"] == "no 7"
    assert service.asked[0]["headers"]["accept"] == "text/plain"
    with pytest.raises(Fail, match="the header X-Branch must be plain ASCII"):
        ask(service.url, {"b": "7\r\nX-Admin: 1"}, headers={"X-Branch": "{{b}}"})


def test_a_missing_field_fails_before_anything_is_sent(service: Service) -> None:
    for params in ({"body": {"x": "{{gone}}"}}, {"query": {"x": "{{gone}}"}}):
        with pytest.raises(Fail, match="the request cannot be built: the data has no field gone"):
            ask(service.url, {}, **params)
    assert service.asked == []


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_a_refusal_fails_the_transaction(service: Service, status: int) -> None:
    with pytest.raises(Fail, match=f"answered {status}: .*because") as failed:
        ask(f"{service.url}/status/{status}")
    assert failed.value.output == {"status": status}


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 503])
def test_later_and_broken_are_raised_for_the_retry_policy(service: Service, status: int) -> None:
    with pytest.raises(UnexpectedResponse, match=f"answered {status}"):
        ask(f"{service.url}/status/{status}")


def test_the_definition_decides_what_is_expected_and_what_fails(service: Service) -> None:
    assert ask(f"{service.url}/status/404", expect=[200, 404])["response"]["status"] == 404
    assert ask(f"{service.url}/status/503", expect=["5xx"])["response"]["status"] == 503
    with pytest.raises(Fail):
        ask(f"{service.url}/status/503", failOn=["5xx"])
    with pytest.raises(UnexpectedResponse):
        ask(f"{service.url}/status/404", failOn=[422])
    with pytest.raises(UnexpectedResponse):
        ask(f"{service.url}/status/201", expect=[200])


def test_empty_and_text_answers(service: Service) -> None:
    assert ask(f"{service.url}/empty")["response"] == {"status": 204, "body": None}
    assert ask(f"{service.url}/text")["response"] == {"status": 200, "body": "grüße"}


@pytest.mark.parametrize("kind", ["broken", "binary", "gzip", "redirect"])
def test_answers_that_cannot_be_used_are_raised(service: Service, kind: str) -> None:
    with pytest.raises(UnexpectedResponse):
        ask(f"{service.url}/{kind}")
    assert len(service.asked) == 1


def test_an_answer_that_is_too_long_is_raised(service: Service) -> None:
    with pytest.raises(NoAnswer, match=f"longer than {RESPONSE_BYTES_MAX} bytes"):
        ask(f"{service.url}/long/1")
    assert len(service.asked) == 1


def test_the_longest_allowed_answer_comes_through(service: Service) -> None:
    assert len(ask(f"{service.url}/long/0")["response"]["body"]) == RESPONSE_BYTES_MAX


@pytest.mark.parametrize("kind", ["never", "drip"])
def test_the_timeout_is_for_the_whole_exchange(service: Service, kind: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(NoAnswer, match=r"no answer within 0\.3 s"):
        ask(f"{service.url}/{kind}", timeoutSeconds=0.3)
    assert time.monotonic() - began_s < 3


def test_a_broken_connection_is_raised(service: Service) -> None:
    with pytest.raises(NoAnswer):
        ask(f"{service.url}/cut")
    service.server_close()
    with pytest.raises(NoAnswer):
        ask(service.url)


def test_a_proxy_of_the_environment_is_not_used(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert ask(service.url)["response"]["status"] == 200


def test_cookies_do_not_go_from_one_transaction_to_the_next(service: Service) -> None:
    ask(f"{service.url}/cookie")
    ask(f"{service.url}/json")
    assert "cookie" not in service.asked[1]["headers"]


@pytest.mark.parametrize(
    ("params", "mistake"),
    [
        ({}, "url must be given"),
        ({"url": "ftp://x/"}, "url must start with http:// or https://"),
        ({"url": "/path"}, "url must start with http:// or https://"),
        ({"url": "http://x:99999/"}, "url is not an address"),
        ({"url": "http://{{host}}/"}, "the host cannot come from the data"),
        ({"url": "http://me:pw@x/"}, "url must not hold a name or password"),
        ({"url": "http://x/#a"}, "url must not have a fragment"),
        ({"url": "http://x/{{a..b}}"}, "url: the placeholder {{a..b}}"),
        ({"url": "http://x/", "method": "get"}, "method must be one of"),
        ({"url": "http://x/", "headers": {"Idempotency-Key": "1"}}, "is set by the step itself"),
        ({"url": "http://x/", "headers": {"a b": "1"}}, "is not the name of a header"),
        ({"url": "http://x/", "headers": {"A": 1}}, "headers.A must be text"),
        ({"url": "http://x/", "query": {"a": []}}, "query.a must be text or a whole number"),
        ({"url": "http://x/", "body": "text"}, 'body must be "data" or an object'),
        ({"url": "http://x/", "body": {"a": "{{}}"}}, "body.a: the placeholder"),
        ({"url": "http://x/", "timeoutSeconds": 0}, "timeoutSeconds must be"),
        ({"url": "http://x/", "expect": []}, "expect must not be empty"),
        ({"url": "http://x/", "failOn": [600]}, "failOn must hold statuses"),
        ({"url": "http://x/", "expect": 200}, "expect must be a list"),
        ({"url": "http://x/", "into": ""}, "into must not be empty"),
        ({"url": "http://x/", "timeout": 5}, "timeout is unknown; did you mean timeoutSeconds?"),
    ],
)
def test_mistakes_of_http_request_are_named(params: dict[str, Any], mistake: str) -> None:
    assert any(mistake in each for each in mistakes(http_request, **params))


def test_only_hosts_that_the_operator_names_are_asked(service: Service) -> None:
    port = service.server_port
    for allowed in (("127.0.0.1",), (f"127.0.0.1:{port}",), ("bank.example", "127.0.0.1")):
        ctx = HandMadeContext(params={"url": service.url}, http_hosts=allowed)
        asyncio.run(http_request(ctx, {}))
    assert len(service.asked) == 3
    for allowed in (("bank.example",), (f"127.0.0.1:{port + 1}",)):
        ctx = HandMadeContext(params={"url": service.url}, http_hosts=allowed)
        with pytest.raises(NoAnswer, match="are not allowed here"):
            asyncio.run(http_request(ctx, {}))
    assert len(service.asked) == 3


def test_the_metadata_of_a_cloud_is_never_asked() -> None:
    with pytest.raises(NoAnswer, match="a cloud metadata address"):
        ask("http://169.254.169.254/latest/meta-data", timeoutSeconds=1)
