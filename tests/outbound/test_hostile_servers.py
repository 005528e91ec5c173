"""What a server may do to a client: every answer here ends in one clean word, in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest

from datp_tasks.outbound.address_guard import AnyAddress
from datp_tasks.outbound.http_client import HttpClient, Manners
from datp_tasks.outbound.messages import Exchange, HttpRequest, NoResponse, Response
from datp_tasks.outbound.response_reader import (
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    INFORMATIONAL_MAX,
    BodyLimits,
)
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
) -> list[Exchange]:
    async def scene() -> list[Exchange]:
        manners = Manners(connect_s=1, body=body, idle_max=4, repeats=repeats)
        client = HttpClient(AnyAddress(), manners)
        try:
            request = HttpRequest(method=method, url=server.url, content=b"{}")
            return [await client.send(request, within_s) for _ in range(times)]
        finally:
            client.close()
            await asyncio.sleep(0.01)

    return asyncio.run(scene())


def reason_of(outcome: Exchange) -> str:
    assert isinstance(outcome, NoResponse), outcome
    return outcome.reason


def bodies(outcomes: Sequence[Exchange]) -> list[bytes | None]:
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

    async def scene() -> list[Exchange]:
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
