"""What a server may do to a client: every answer here ends in one clean word, in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest

from datp_tasks.outbound.addresses import Target
from datp_tasks.outbound.connection import Connection, open_connection
from datp_tasks.outbound.guard import AnyAddress
from datp_tasks.outbound.http_client import HttpClient, Manners, Network
from datp_tasks.outbound.messages import HttpRequest, NoResponse, NotSent, Outcome, Response
from datp_tasks.outbound.response_reader import (
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    INFORMATIONAL_MAX,
    BodyLimits,
)
from datp_tasks.settings import Settings
from datp_tasks.webhooks.service import webhook_client
from tests.outbound.hostile import HostileServer, Last, hostile

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#: A second response, for a client that takes what follows the first one for the next.
FORGED = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
BODY_BYTES_MAX = 1_000

#: All of the body is wanted, as for a ledger.
WHOLE = BodyLimits(bytes_max=BODY_BYTES_MAX)
#: Only the status is, as for a webhook.
EXCERPT = BodyLimits(bytes_max=BODY_BYTES_MAX, excerpt_bytes_max=10)


def send(
    server: HostileServer,
    *,
    times: int = 1,
    method: str = "POST",
    within_s: float = 5.0,
    body: BodyLimits = WHOLE,
    repeats: bool = False,
) -> list[Outcome]:
    async def scene() -> list[Outcome]:
        manners = Manners(connect_s=1, body=body, idle_max=4, repeats=repeats)
        client = HttpClient(AnyAddress(), manners)
        try:
            request = HttpRequest(method=method, url=server.url, content=b"{}")
            return [await client.send(request, within_s) for _ in range(times)]
        finally:
            client.close()
            await asyncio.sleep(0.01)

    return asyncio.run(scene())


def reason_of(outcome: Outcome) -> str:
    assert isinstance(outcome, NoResponse), outcome
    return outcome.reason


def bodies(outcomes: Sequence[Outcome]) -> list[bytes | None]:
    return [each.body if isinstance(each, Response) else None for each in outcomes]


def with_headers(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode("latin-1") + body


SMUGGLED = {
    "both lengths": with_headers(
        "Content-Length: 5", "Transfer-Encoding: chunked", body=b"0\r\n\r\n" + FORGED
    ),
    "both lengths, chunked first": with_headers(
        "Transfer-Encoding: chunked", "Content-Length: 5", body=b"0\r\n\r\n" + FORGED
    ),
    "two lengths": with_headers("Content-Length: 2", "Content-Length: 40", body=b"ok" + FORGED),
    "one length twice": with_headers("Content-Length: 2", "Content-Length: 2", body=b"ok"),
    "a list of lengths": with_headers("Content-Length: 2, 2", body=b"ok"),
    "a length with a sign": with_headers("Content-Length: +2", body=b"ok"),
    "a length below zero": with_headers("Content-Length: -2", body=b"ok"),
    "a length in hex": with_headers("Content-Length: 0x2", body=b"ok"),
    "a length that overflows": with_headers("Content-Length: 18446744073709551618", body=b"ok"),
    "chunked in disguise": with_headers(
        "Transfer-Encoding: xchunked", body=b"2\r\nok\r\n0\r\n\r\n"
    ),
    "chunked, then something else": with_headers("Transfer-Encoding: chunked, gzip", body=b"ok"),
    "a space before the colon": with_headers("Content-Length : 2", body=b"ok"),
    "a folded header": with_headers("X: a", " Content-Length: 2", "Content-Length: 2", body=b"ok"),
    "a NUL in a header": with_headers("X: a\0b", "Content-Length: 2", body=b"ok"),
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "a chunk that is no number": with_headers("Transfer-Encoding: chunked", body=b"zz\r\nok\r\n"),
    "a chunk that is longer": with_headers(
        "Transfer-Encoding: chunked", body=b"1\r\nok\r\n0\r\n\r\n"
    ),
    "a chunk without end": with_headers("Transfer-Encoding: chunked", body=b"f" * 20 + b"\r\n"),
    "another version": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "another protocol": b"RTSP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "a switch of protocols": b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nok",
}


@pytest.mark.parametrize("answer", SMUGGLED.values(), ids=SMUGGLED)
def test_a_response_whose_end_is_in_doubt_is_refused_and_its_connection_closed(
    answer: bytes,
) -> None:
    with hostile(answer, OK) as server:
        first, second = send(server, times=2)
        assert "no answer" not in reason_of(first)
        assert bodies([second]) == [b"ok"]
        assert server.connections == 2


@pytest.mark.parametrize("answer", list(SMUGGLED.values())[:4], ids=list(SMUGGLED)[:4])
def test_a_head_in_doubt_delivers_no_webhook_either(answer: bytes) -> None:
    with hostile(answer, OK) as server:
        (outcome,) = send(server, body=EXCERPT)
    assert "no answer" not in reason_of(outcome)


def test_a_body_in_doubt_only_costs_the_connection_where_the_status_is_enough() -> None:
    with hostile(with_headers("Transfer-Encoding: chunked", body=b"zz\r\n"), OK) as server:
        outcomes = send(server, times=2, body=EXCERPT)
        assert [isinstance(each, Response) for each in outcomes] == [True, True]
        assert server.connections == 2


def test_a_second_response_to_one_request_is_never_read() -> None:
    with hostile(OK + FORGED, OK) as server:
        assert bodies(send(server, times=2)) == [b"ok", b"ok"]
        assert server.connections == 2


def test_a_response_that_was_not_asked_for_is_never_read() -> None:
    """It comes while the connection waits to be used again."""
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(EOFError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(OK)
        writer.close()

    async def scene() -> list[Outcome]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        request = HttpRequest(method="GET", url=url)
        client = HttpClient(AnyAddress(), Manners(connect_s=1, body=WHOLE, idle_max=4))
        async with server:
            first = await client.send(request, 5)
            # This event loop has not read it when the connection is wanted again.
            writers[0].write(FORGED)
            second = await client.send(request, 5)
            writers[1].write(FORGED)
            await asyncio.sleep(0.05)
            third = await client.send(request, 5)
            client.close()
            await asyncio.sleep(0.01)
        return [first, second, third]

    assert bodies(asyncio.run(scene())) == [b"ok"] * 3
    assert len(writers) == 3


def test_a_connection_with_an_unread_body_is_not_used_again() -> None:
    long = with_headers(f"Content-Length: {len(FORGED) * 100}", body=FORGED * 100)
    with hostile(long, OK) as server:
        assert bodies(send(server, times=2, body=EXCERPT)) == [FORGED[:10], b"ok"]
        assert server.connections == 2


def test_a_connection_is_used_again_after_a_body_that_was_read() -> None:
    chunked = with_headers("Transfer-Encoding: chunked", body=b"2\r\nok\r\n0\r\nX: y\r\n\r\n")
    with hostile(OK, chunked, b"HTTP/1.1 204 No Content\r\n\r\n", OK) as server:
        assert bodies(send(server, times=4)) == [b"ok", b"ok", b"", b"ok"]
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        with_headers("Content-Length: 2", "Connection: close", body=b"ok"),
        with_headers("Content-Length: 2", "Connection: x, close", body=b"ok"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
def test_a_connection_that_the_server_ends_is_not_used_again(answer: bytes) -> None:
    with hostile(answer, OK) as server:
        assert bodies(send(server, times=2)) == [b"ok", b"ok"]
        assert server.connections == 2


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    with hostile(Last(with_headers(body=b"all of it"))) as server:
        assert bodies(send(server)) == [b"all of it"]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Le",
        with_headers("Content-Length: 3", body=b"ok"),
        with_headers("Transfer-Encoding: chunked", body=b"2\r\nok\r\n"),
    ],
)
def test_a_response_that_is_cut_off_is_none(answer: bytes) -> None:
    with hostile(Last(answer)) as server:
        assert reason_of(send(server)[0]) == "the response was cut off"


def test_a_response_to_head_has_no_body() -> None:
    with hostile(with_headers("Content-Length: 2000"), OK) as server:
        outcomes = send(server, times=2, method="HEAD")
        assert bodies(outcomes) == [b"", b""]
        assert server.connections == 2


def test_a_flood_of_1xx_responses_ends() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    with hostile(hints * INFORMATIONAL_MAX + OK, hints * (INFORMATIONAL_MAX + 1) + OK) as server:
        first, second = send(server, times=2)
    assert bodies([first]) == [b"ok"]
    assert reason_of(second) == "too many 1xx responses"


def test_headers_of_a_1xx_response_are_not_those_of_the_answer() -> None:
    with hostile(b"HTTP/1.1 103 Early Hints\r\nretry-after: 99\r\n\r\n" + OK) as server:
        (outcome,) = send(server)
    assert isinstance(outcome, Response)
    assert outcome.headers == {"content-length": "2"}


HEADER_BOMBS = {
    "many": [f"x{number}: y" for number in range(HEADERS_MAX + 1)],
    "one that is long": ["x: " + "y" * HEAD_BYTES_MAX],
    "a long name": ["x" * HEAD_BYTES_MAX + ": y"],
    "one name again and again": ["x: y"] * (HEADERS_MAX + 1),
}


@pytest.mark.parametrize("body", [WHOLE, EXCERPT], ids=["whole", "excerpt"])
@pytest.mark.parametrize("lines", HEADER_BOMBS.values(), ids=HEADER_BOMBS)
def test_headers_have_a_limit(lines: list[str], body: BodyLimits) -> None:
    with hostile(with_headers(*lines, "Content-Length: 0")) as server:
        reason = reason_of(send(server, body=body)[0])
    assert "headers" in reason


def test_headers_of_many_1xx_responses_share_their_limit() -> None:
    hints = b"HTTP/1.1 103 X\r\nx: " + b"y" * (HEAD_BYTES_MAX // 4) + b"\r\n\r\n"
    with hostile(hints * 5 + OK) as server:
        assert "headers are longer than" in reason_of(send(server)[0])


def test_the_longest_head_and_body_that_are_allowed_come_through() -> None:
    lines = [f"x{number}: {'y' * 600}" for number in range(HEADERS_MAX - 1)]
    body = b"z" * BODY_BYTES_MAX
    with hostile(with_headers(*lines, f"Content-Length: {len(body)}", body=body)) as server:
        assert bodies(send(server)) == [body]


BODY_BOMBS = {
    "announced": with_headers(f"Content-Length: {BODY_BYTES_MAX + 1}"),
    "chunked": with_headers(
        "Transfer-Encoding: chunked", body=b"1f4\r\n" + (b"x" * 500 + b"\r\n1f4\r\n") * 3
    ),
    "until the connection ends": with_headers(body=b"x" * (BODY_BYTES_MAX + 1)),
    "a chunk extension": with_headers(
        "Transfer-Encoding: chunked", body=b"1;" + b"x" * (HEAD_BYTES_MAX + 20 * BODY_BYTES_MAX)
    ),
}


@pytest.mark.parametrize("answer", BODY_BOMBS.values(), ids=BODY_BOMBS)
def test_bodies_have_a_limit(answer: bytes) -> None:
    with hostile(answer) as server:
        reason = reason_of(send(server, within_s=2)[0])
    assert reason == f"the response is longer than {BODY_BYTES_MAX} bytes"


def test_trailers_have_a_limit() -> None:
    trailers = b"".join(b"x%d: y\r\n" % number for number in range(HEADERS_MAX + 1))
    answer = with_headers("Transfer-Encoding: chunked", body=b"0\r\n" + trailers + b"\r\n")
    with hostile(answer) as server:
        assert "headers" in reason_of(send(server)[0])


SLOW = {
    "head": with_headers("x: " + "y" * 1_000),
    "body": with_headers("Content-Length: 900", body=b"x" * 900),
    "chunks": with_headers("Transfer-Encoding: chunked", body=b"1\r\nx\r\n" * 200),
    "1xx": b"HTTP/1.1 103 X\r\n\r\n" * 100,
}


@pytest.mark.parametrize("answer", SLOW.values(), ids=SLOW)
def test_a_response_that_drips_is_cut_off_at_the_deadline(answer: bytes) -> None:
    """Each byte comes in time for a timeout per read; the whole does not."""
    with hostile(answer) as server:
        server.drip_s = 0.005
        began_s = time.monotonic()
        (outcome,) = send(server, within_s=0.5)
        took_s = time.monotonic() - began_s
        assert server.hung_up.wait(2)
    assert outcome == NoResponse("no answer within 0.5 s")
    assert 0.45 <= took_s < 2


def test_a_body_that_drips_holds_up_no_webhook() -> None:
    with hostile(with_headers("Content-Length: 900", body=b"x" * 900)) as server:
        server.drip_s = 0.005
        began_s = time.monotonic()
        (outcome,) = send(server, body=EXCERPT, within_s=30)
        took_s = time.monotonic() - began_s
    assert isinstance(outcome, Response) and outcome.status == 200
    assert took_s < 5


def test_a_status_that_comes_before_the_deadline_counts_at_the_deadline() -> None:
    """The time for the body is not added to the deadline."""
    answer = with_headers("Content-Length: 900")
    limits = BodyLimits(bytes_max=BODY_BYTES_MAX, excerpt_bytes_max=10, excerpt_s_max=30)
    with hostile(answer) as server:
        began_s = time.monotonic()
        (outcome,) = send(server, body=limits, within_s=0.5)
        took_s = time.monotonic() - began_s
    assert isinstance(outcome, Response) and outcome.status == 200
    assert took_s < 2


@pytest.mark.parametrize("repeats", [False, True])
def test_what_a_kept_connection_has_lost_is_only_sent_again_where_that_is_safe(
    repeats: bool,
) -> None:
    with hostile(OK, None, OK) as server:
        first, second = send(server, times=2, repeats=repeats)
        assert bodies([first]) == [b"ok"]
        if repeats:
            assert bodies([second]) == [b"ok"]
        else:
            assert isinstance(second, NoResponse)
        assert len(server.requests) == (3 if repeats else 2)


def test_what_was_answered_in_part_is_not_sent_again() -> None:
    with hostile(OK, Last(b"HTTP/1.1 2"), OK) as server:
        first, second = send(server, times=2, repeats=True)
        assert bodies([first]) == [b"ok"]
        assert reason_of(second) == "the response was cut off"
        assert len(server.requests) == 2


# Where the connection goes.


class Changing:
    """A name that leads elsewhere each time it is asked for."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)

    async def __call__(self, host: str, port: int) -> list[str]:
        return self._answers.pop(0)


def test_an_address_that_changes_between_check_and_connect_is_not_connected_to() -> None:
    """Only the address that was checked is; the next one is asked for and checked anew."""
    opened: list[str] = []

    async def connect(address: str, target: Target) -> Connection:
        opened.append(address)
        raise ConnectionRefusedError(f"{address} is not really asked")

    async def scene() -> list[Outcome]:
        names = Changing(["93.184.216.34"], ["127.0.0.1"], ["169.254.169.254"])
        client = webhook_client(Settings(), Network(names, connect))
        request = HttpRequest(method="POST", url="https://changing.example/", content=b"{}")
        return [await client.send(request, 1) for _ in range(3)]

    first, second, third = asyncio.run(scene())
    assert opened == ["93.184.216.34"]
    assert first == NotSent("ConnectionRefusedError: 93.184.216.34 is not really asked")
    assert second == NotSent("changing.example leads to 127.0.0.1, which is not a public address")
    assert third == NotSent("changing.example leads to 169.254.169.254, a cloud metadata address")


def test_host_and_sni_say_the_name_and_the_connection_goes_to_the_address() -> None:
    hello: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.append(await reader.read(65_536))
        writer.close()

    async def scene() -> tuple[Outcome, Outcome]:
        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        names = Changing(["127.0.0.1"], ["127.0.0.1"])
        async with server:
            settings = Settings(webhook_private_hosts=("hooks.internal",))
            client = webhook_client(settings, Network(names, open_connection))
            secure = HttpRequest(method="POST", url=f"https://hooks.internal:{port}/")
            plain = HttpRequest(method="POST", url=f"http://hooks.internal:{port}/")
            return await client.send(secure, 2), await client.send(plain, 2)

    secure, plain = asyncio.run(scene())
    # Without a certificate nothing of the request leaves.
    assert isinstance(secure, NotSent) and isinstance(plain, NoResponse)
    assert b"hooks.internal" in hello[0] and b"POST" not in hello[0]
    assert b"\r\nhost: hooks.internal:" in hello[1]


def test_an_address_that_does_not_answer_leaves_time_for_the_next() -> None:
    async def connect(address: str, target: Target) -> Connection:
        if address != "127.0.0.1":
            await asyncio.Event().wait()
        return await open_connection(address, target)

    async def scene(url: str) -> Outcome:
        names = Changing(["192.0.2.1", "127.0.0.1"])
        client = HttpClient(
            AnyAddress(), Manners(connect_s=60, body=WHOLE), Network(names, connect)
        )
        return await client.send(HttpRequest(method="GET", url=url), 1)

    with hostile(OK) as server:
        assert bodies([asyncio.run(scene(server.url))]) == [b"ok"]


def test_a_connection_that_times_out_says_so() -> None:
    async def connect(address: str, target: Target) -> Connection:
        await asyncio.Event().wait()
        raise AssertionError

    async def scene() -> Outcome:
        client = HttpClient(
            AnyAddress(),
            Manners(connect_s=0.05, body=WHOLE),
            Network(Changing(["192.0.2.1"]), connect),
        )
        return await client.send(HttpRequest(method="GET", url="http://bank.example/"), 5)

    assert asyncio.run(scene()) == NotSent("OSError: 192.0.2.1: connection timed out")


@pytest.mark.parametrize(
    "request_",
    [
        HttpRequest(method="GET", url="http://127.0.0.1/", headers={"x": "a\r\ny: b"}),
        HttpRequest(method="GET", url="http://127.0.0.1/", headers={"x": "a\ny: b"}),
        HttpRequest(method="GET", url="http://127.0.0.1/", headers={"x\r\ny": "b"}),
        HttpRequest(method="GET", url="http://127.0.0.1/", headers={"x": "a\0b"}),
        HttpRequest(method="GET", url="http://127.0.0.1/", headers={"x": "ü"}),
        HttpRequest(method="GET / HTTP/1.1\r\nx: y", url="http://127.0.0.1/"),
        HttpRequest(method="GET", url="http://127.0.0.1/\r\nx: y"),
        HttpRequest(method="GET", url="http://127.0.0.1/a b"),
        HttpRequest(method="GET", url="ftp://127.0.0.1/"),
    ],
)
def test_a_request_that_would_break_its_own_head_is_not_sent(request_: HttpRequest) -> None:
    async def connect(address: str, target: Target) -> Connection:
        raise AssertionError("it was sent")

    async def scene() -> Outcome:
        manners = Manners(connect_s=1, body=WHOLE)
        client = HttpClient(AnyAddress(), manners, Network(Changing(["127.0.0.1"]), connect))
        return await client.send(request_, 1)

    assert isinstance(asyncio.run(scene()), NotSent)
