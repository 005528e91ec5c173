"""HTTP: one deadline for everything, and always the right word about whether it was sent."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from datp_tasks.ledger import ledger_service
from datp_tasks.ledger.ledger_service import BODY_BYTES_MAX, ledger_client
from datp_tasks.local.ports import pick_free_port
from datp_tasks.outbound.messages import Exchange, HttpRequest, NoResponse, NotSent, Response
from datp_tasks.outbound.threaded_client import ThreadedHttpClient
from datp_tasks.settings import Settings

Talk = Callable[[socket.socket], None]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedHttpClient]:
    monkeypatch.setattr(ledger_service, "CONNECT_S", 1.0)
    made = ledger_client(Settings(ledger_authorization="Bearer let-me-in"))
    yield made
    made.close()


@contextmanager
def server(talk: Talk) -> Iterator[str]:
    """A server that does just this with its first connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                talk(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def post(wire: ThreadedHttpClient, url: str, *, within_s: float = 5.0) -> Exchange:
    request = HttpRequest(method="POST", url=url, content=b"x" * 100)
    return wire.start(request, time.monotonic() + within_s).result(20)


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"x" * 100):
        data += connection.recv(65_536)
    return data


def test_an_answer_is_passed_on(wire: ThreadedHttpClient) -> None:
    heard: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        heard.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}")

    with server(talk) as url:
        answer = post(wire, url)
    assert isinstance(answer, Response) and (answer.status, answer.body) == (202, b"{}")
    assert b"authorization: bearer let-me-in" in heard[0].lower()
    assert b"accept-encoding: identity" in heard[0].lower()


def test_a_connection_that_is_refused_was_not_sent(wire: ThreadedHttpClient) -> None:
    assert isinstance(post(wire, f"http://127.0.0.1:{pick_free_port()}"), NotSent)


def test_a_host_that_is_not_found_was_not_sent(wire: ThreadedHttpClient) -> None:
    assert isinstance(post(wire, "http://nowhere.invalid"), NotSent)


@pytest.mark.parametrize("url", ["http://[half", "nonsense", "http://127.0.0.1:99999"])
def test_an_address_that_cannot_be_used_was_not_sent(wire: ThreadedHttpClient, url: str) -> None:
    assert isinstance(post(wire, url), NotSent)


def test_what_is_over_before_it_begins_was_not_sent(wire: ThreadedHttpClient) -> None:
    def never(connection: socket.socket) -> None:
        raise AssertionError("it was sent")

    request = HttpRequest(method="POST", url=f"http://127.0.0.1:{pick_free_port()}")
    outcome = wire.start(request, time.monotonic() - 0.001).result(5)
    assert outcome == NotSent("its time was over before it was sent")


def test_a_connection_that_is_dropped_after_the_request_has_no_answer(
    wire: ThreadedHttpClient,
) -> None:
    def talk(connection: socket.socket) -> None:
        read_request(connection)

    with server(talk) as url:
        assert isinstance(post(wire, url), NoResponse)


def test_an_answer_that_is_cut_off_is_no_answer(wire: ThreadedHttpClient) -> None:
    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{")

    with server(talk) as url:
        assert isinstance(post(wire, url), NoResponse)


def test_an_answer_that_drips_is_cut_off_at_the_deadline(wire: ThreadedHttpClient) -> None:
    """Each byte comes in time for a timeout per read; the whole does not."""
    pause, hung_up = threading.Event(), threading.Event()

    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(100):
            try:
                connection.sendall(b".")
            except OSError:
                hung_up.set()
                return
            pause.wait(0.05)

    with server(talk) as url:
        began_s = time.monotonic()
        outcome = post(wire, url, within_s=0.5)
        took_s = time.monotonic() - began_s
        # Nobody is left listening, and the thread is free for the next one.
        assert hung_up.wait(2)
    assert isinstance(outcome, NoResponse)
    assert 0.4 <= took_s < 3


def test_an_answer_without_end_is_not_read_to_its_end(wire: ThreadedHttpClient) -> None:
    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 999999999\r\n\r\n")
        try:
            for _ in range(100):
                connection.sendall(b"." * 65_536)
        except OSError:
            return

    with server(talk) as url:
        outcome = post(wire, url)
    assert outcome == NoResponse(f"the response is longer than {BODY_BYTES_MAX} bytes")


def test_a_redirect_is_an_answer_and_is_not_followed(wire: ThreadedHttpClient) -> None:
    def talk(connection: socket.socket) -> None:
        read_request(connection)
        where = b"Location: http://169.254.169.254/latest\r\n"
        connection.sendall(b"HTTP/1.1 302 Found\r\n" + where + b"Content-Length: 0\r\n\r\n")

    with server(talk) as url:
        answer = post(wire, url)
    assert isinstance(answer, Response) and (answer.status, answer.body) == (302, b"")


def test_a_deadline_before_the_connection_is_made_means_not_sent(
    wire: ThreadedHttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A backlog that is full: connecting hangs.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fill = [socket.socket() for _ in range(3)]
        for each in fill:
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            assert isinstance(post(wire, url, within_s=0.4), NotSent)
        finally:
            for each in fill:
                each.close()


def test_it_can_be_closed_twice_and_used_from_many_threads(wire: ThreadedHttpClient) -> None:
    outcomes: list[Exchange] = []
    url = f"http://127.0.0.1:{pick_free_port()}"
    threads = [threading.Thread(target=lambda: outcomes.append(post(wire, url))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [type(each) for each in outcomes] == [NotSent] * 8
    wire.close()
    wire.close()
