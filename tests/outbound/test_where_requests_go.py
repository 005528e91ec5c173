"""Requests go to the address that was checked, under the name that was asked for, or nowhere."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import Any

import pytest

from datp_tasks.outbound.address_guard import AnyAddress
from datp_tasks.outbound.addresses import Target
from datp_tasks.outbound.connection import Connection, open_connection
from datp_tasks.outbound.http_client import HttpClient, Manners, Network
from datp_tasks.outbound.messages import Exchange, HttpRequest, NoResponse, NotSent, Response
from datp_tasks.outbound.response_reader import BodyLimits
from datp_tasks.outbound.trouble import trouble_in_words
from datp_tasks.settings import Settings
from datp_tasks.webhooks.webhook_service import webhook_client
from tests.outbound.hostile import hostile

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WHOLE = BodyLimits(bytes_max=1_000)


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

    async def scene() -> list[Exchange]:
        names = Changing(["93.184.216.34"], ["127.0.0.1"], ["169.254.169.254"])
        client = webhook_client(Settings(), Network(names, connect))
        request = HttpRequest(method="POST", url="https://changing.example/", content=b"{}")
        return [await client.send(request, 1) for _ in range(3)]

    first, second, third = asyncio.run(scene())
    assert opened == ["93.184.216.34"]
    assert first == NotSent("changing.example refuses connections")
    assert second == NotSent("changing.example leads to 127.0.0.1, which is not a public address")
    assert third == NotSent("changing.example leads to 169.254.169.254, a cloud metadata address")


def test_host_and_sni_say_the_name_and_the_connection_goes_to_the_address() -> None:
    hello: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.append(await reader.read(65_536))
        writer.close()

    async def scene() -> tuple[Exchange, Exchange]:
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

    async def scene(url: str) -> Exchange:
        names = Changing(["192.0.2.1", "127.0.0.1"])
        client = HttpClient(
            AnyAddress(), Manners(connect_s=60, body=WHOLE), Network(names, connect)
        )
        return await client.send(HttpRequest(method="GET", url=url), 1)

    with hostile(OK) as server:
        outcome = asyncio.run(scene(server.url))
    assert isinstance(outcome, Response) and outcome.body == b"ok"


def test_a_connection_that_times_out_says_so() -> None:
    async def connect(address: str, target: Target) -> Connection:
        await asyncio.Event().wait()
        raise AssertionError

    async def scene() -> Exchange:
        client = HttpClient(
            AnyAddress(),
            Manners(connect_s=0.05, body=WHOLE),
            Network(Changing(["192.0.2.1"]), connect),
        )
        return await client.send(HttpRequest(method="GET", url="http://bank.example/"), 5)

    assert asyncio.run(scene()) == NotSent("192.0.2.1: connection timed out")


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

    async def scene() -> Exchange:
        manners = Manners(connect_s=1, body=WHOLE)
        client = HttpClient(AnyAddress(), manners, Network(Changing(["127.0.0.1"]), connect))
        return await client.send(request_, 1)

    assert isinstance(asyncio.run(scene()), NotSent)


TROUBLES: dict[str, list[Exception]] = {
    "the name bank.example cannot be resolved": [
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        UnicodeError("label empty or too long"),
    ],
    "the name bank.example cannot be resolved: the name service does not answer": [
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    ],
    "bank.example:8443 refuses connections": [ConnectionRefusedError(111, "Connection refused")],
    "bank.example:8443 closed the connection before it answered": [
        ConnectionResetError(104, "Connection reset by peer"),
        BrokenPipeError(32, "Broken pipe"),
    ],
    "bank.example:8443 cannot be reached: there is no way to its network": [
        OSError(errno.EHOSTUNREACH, "No route to host")
    ],
    "this machine can open no connection now: Too many open files": [
        OSError(errno.EMFILE, "Too many open files")
    ],
    "192.0.2.1: connection timed out": [OSError("192.0.2.1: connection timed out")],
    "it was not sent": [OSError()],
}


@pytest.mark.parametrize(
    ("says", "error"), [(says, each) for says, errors in TROUBLES.items() for each in errors]
)
def test_what_went_wrong_is_said_in_words(says: str, error: Exception) -> None:
    """Not with the name of a class, and with nothing of the URL but its host and port."""

    async def resolve(host: str, port: int) -> list[str]:
        raise error

    async def scene() -> Exchange:
        client = webhook_client(Settings(), Network(resolve, open_connection))
        url = "https://bank.example:8443/hooks/s3cret?token=s3cret"
        return await client.send(HttpRequest(method="POST", url=url, content=b"{}"), 5)

    assert asyncio.run(scene()) == NotSent(says)


def test_a_certificate_that_is_not_accepted_is_said_so() -> None:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] (_ssl.c:1006)")
    error.verify_message = "certificate has expired"
    wanted = "the certificate of bank.example is not accepted: certificate has expired"
    assert trouble_in_words(error, "https://bank.example/x") == wanted
    wrong = ssl.SSLError(1, "wrong")
    wrong.reason = "WRONG_VERSION_NUMBER"
    wanted = "no encrypted connection with bank.example: wrong version number"
    assert trouble_in_words(wrong, "https://bank.example/x") == wanted


def test_what_is_not_known_is_not_made_up() -> None:
    unnamed = trouble_in_words(socket.gaierror(socket.EAI_NONAME, ""), "https:///x")
    assert unnamed == "the name of the host cannot be resolved"
    assert "name" not in trouble_in_words(UnicodeError("ascii"), "https://bank.example/x")

    class Silent:
        async def ask(self, *_: Any) -> None:
            raise OSError

        def abort(self) -> None: ...

    async def connect(address: str, target: Target) -> Any:
        return Silent()

    async def scene() -> Exchange:
        manners = Manners(connect_s=1, body=WHOLE)
        client = HttpClient(AnyAddress(), manners, Network(Changing(["127.0.0.1"]), connect))
        return await client.send(HttpRequest(method="GET", url="http://127.0.0.1/"), 1)

    assert asyncio.run(scene()) == NoResponse("it is not known whether it arrived")
