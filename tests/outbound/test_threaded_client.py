"""The client for threads: whatever happens to it, every request comes to an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from datp_tasks.outbound import threaded_client
from datp_tasks.outbound.address_guard import AnyAddress
from datp_tasks.outbound.http_client import Manners
from datp_tasks.outbound.messages import HttpRequest, NoResponse, NotSent, Response
from datp_tasks.outbound.response_reader import BodyLimits
from datp_tasks.outbound.threaded_client import ThreadedHttpClient
from tests.outbound.hostile import HostileServer, hostile

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MANNERS = Manners(connect_s=1, body=BodyLimits(bytes_max=1_000), idle_max=4)


@pytest.fixture
def client() -> Iterator[ThreadedHttpClient]:
    made = ThreadedHttpClient(AnyAddress(), MANNERS)
    yield made
    made.close()


def get(server: HostileServer) -> HttpRequest:
    return HttpRequest(method="GET", url=server.url)


def wait_for_requests(server: HostileServer, count: int) -> None:
    give_up_s = time.monotonic() + 10
    while len(server.requests) < count:
        assert time.monotonic() < give_up_s
        server.closed.wait(0.005)


def test_closing_ends_what_is_under_way(client: ThreadedHttpClient) -> None:
    with hostile(b"") as server:
        under_way = client.start(get(server), time.monotonic() + 60)
        wait_for_requests(server, 1)
        client.close()
        assert under_way.result(5) == NoResponse("the client was closed")


def test_it_starts_anew_after_it_was_closed(client: ThreadedHttpClient) -> None:
    with hostile(OK, OK) as server:
        for _ in range(2):
            outcome = client.start(get(server), time.monotonic() + 5).result(10)
            assert isinstance(outcome, Response) and outcome.body == b"ok"
            client.close()
        assert server.connections == 2


def test_what_finds_no_place_in_its_time_is_not_sent(
    client: ThreadedHttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threaded_client, "UNDER_WAY_MAX", 1)
    with hostile(b"", OK) as server:
        first = client.start(get(server), time.monotonic() + 60)
        wait_for_requests(server, 1)
        second = client.start(get(server), time.monotonic() + 0.1)
        assert second.result(5) == NotSent("its time was over before it was sent")
        client.close()
        assert isinstance(first.result(5), NoResponse)
        assert len(server.requests) == 1


def test_a_request_that_is_held_up_past_its_time_is_not_sent() -> None:
    """Nor on a connection that is open already: the last look at the clock comes after all else."""
    pause, pauses_s = threading.Event(), [0.0, 0.2]

    def holds_up() -> None:
        pause.wait(pauses_s.pop(0))

    client = ThreadedHttpClient(AnyAddress(), MANNERS, before_send=holds_up)
    try:
        with hostile(OK, OK) as server:
            first = client.start(get(server), time.monotonic() + 5).result(10)
            second = client.start(get(server), time.monotonic() + 0.1).result(10)
            assert isinstance(first, Response)
            assert second == NotSent("its time was over before it was sent")
            assert len(server.requests) == 1
    finally:
        client.close()
