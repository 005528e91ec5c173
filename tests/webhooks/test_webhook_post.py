"""One POST: pinned to a checked address, with a deadline, whatever the other side does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from datp_tasks.outbound.addresses import Target
from datp_tasks.outbound.connection import Connect, Connection, open_connection
from datp_tasks.outbound.http_client import HttpClient, Network
from datp_tasks.outbound.messages import Exchange, HttpRequest, NoResponse, NotSent, Response
from datp_tasks.outbound.resolver import Resolve
from datp_tasks.outbound.response_reader import ResponseReader
from datp_tasks.settings import Settings
from datp_tasks.webhooks import webhook_service
from datp_tasks.webhooks.webhook_service import webhook_client
from tests.support.receiver import Receiver, answers, drips, floods, hangs

SETTINGS = Settings(webhook_timeout_s=0.4)
TRUSTING = Settings(webhook_timeout_s=0.4, webhook_private_hosts=("127.0.0.1", "inside"))


@pytest.fixture(autouse=True)
def short_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_service, "CONNECT_S", 0.3)


class Names:
    """A name service that answers as it is told, one answer after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class Opened:
    """Every address that anybody wanted to connect to."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    async def __call__(self, address: str, target: Target) -> Connection:
        self.addresses.append(address)
        if address == "127.0.0.1":
            return await open_connection(address, target)
        raise ConnectionRefusedError(f"{address} is not really asked")


def poster(settings: Settings, names: Resolve, connect: Connect = open_connection) -> HttpClient:
    return webhook_client(settings, Network(names, connect))


def run(work: Callable[[], Awaitable[Any]], *clients: HttpClient) -> Any:
    async def scene() -> Any:
        try:
            return await work()
        finally:
            for client in clients:
                client.close()
            await asyncio.sleep(0.01)

    return asyncio.run(scene())


def hook(url: str) -> HttpRequest:
    return HttpRequest(method="POST", url=url, headers={"x": "y"}, content=b"{}")


def post(client: HttpClient, url: str, *, times: int = 1) -> list[Exchange]:
    async def work() -> list[Exchange]:
        return [await client.send(hook(url), SETTINGS.webhook_timeout_s) for _ in range(times)]

    found: list[Exchange] = run(work, client)
    return found


def test_a_name_that_changes_its_mind_after_the_check_gains_nothing(receiver: Receiver) -> None:
    """The first answer is public and is checked; the second leads to this machine."""
    names, opened = Names(["93.184.216.34"], ["127.0.0.1"]), Opened()
    (answer,) = post(poster(SETTINGS, names, opened), "https://rebinding.example/")
    assert isinstance(answer, NotSent)
    assert (names.asked, opened.addresses) == (1, ["93.184.216.34"])
    assert receiver.connections == 0


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.1"],
        ["93.184.216.34", "127.0.0.1"],
        ["169.254.169.254"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["fe80::1%2"],
        [],
    ],
)
def test_a_name_with_one_address_inside_is_not_connected_to(found: list[str]) -> None:
    opened = Opened()
    (answer,) = post(poster(SETTINGS, Names(found), opened), "https://inside.example/")
    assert isinstance(answer, NotSent)
    assert "leads to" in answer.reason or "no address" in answer.reason
    assert opened.addresses == []


def test_addresses_are_tried_in_turn(receiver: Receiver) -> None:
    opened = Opened()
    client = poster(TRUSTING, Names(["10.255.255.1", "127.0.0.1"]), opened)
    (answer,) = post(client, f"http://inside:{receiver.port}/x")
    assert isinstance(answer, Response) and answer.status == 200
    assert opened.addresses == ["10.255.255.1", "127.0.0.1"]
    assert receiver.got[0].headers["host"] == f"inside:{receiver.port}"


def test_a_redirect_is_an_answer_and_nothing_more(receiver: Receiver) -> None:
    receiver.plan("/go", answers(307, f"location: {receiver.url('/secret')}"))
    (answer,) = post(poster(TRUSTING, Names(["127.0.0.1"])), receiver.url("/go"))
    assert isinstance(answer, Response) and answer.status == 307
    assert [got.path for got in receiver.got] == ["/go"]


def test_a_proxy_of_the_environment_is_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setitem(os.environ, name, "http://127.0.0.1:1")
    (answer,) = post(poster(TRUSTING, Names(["127.0.0.1"])), receiver.url())
    assert isinstance(answer, Response) and answer.status == 200


@pytest.mark.parametrize("behaviour", [hangs, drips])
def test_one_deadline_counts_for_everything(receiver: Receiver, behaviour: Any) -> None:
    receiver.plan("/slow", behaviour)

    async def work() -> float:
        client = poster(TRUSTING, Names(["127.0.0.1"]))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await client.send(hook(receiver.url("/slow")), 0.4) == NoResponse(
            "no answer within 0.4 s"
        )
        return loop.time() - began_s

    assert 0.35 < run(work) < 2


def test_a_name_service_that_hangs_is_not_waited_for() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    (answer,) = post(poster(SETTINGS, never), "https://example.com/")
    assert answer == NotSent("no answer within 0.4 s")


def test_of_a_flood_only_the_beginning_is_read(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.plan("/flood", floods)
    feed, read = ResponseReader.feed, []

    def counts(reader: ResponseReader, data: bytes) -> bool:
        read.append(len(data))
        return feed(reader, data)

    monkeypatch.setattr(ResponseReader, "feed", counts)
    (answer,) = post(poster(TRUSTING, Names(["127.0.0.1"])), receiver.url("/flood"))
    assert isinstance(answer, Response)
    assert (answer.status, len(answer.body)) == (500, 1_024)
    # What one read of a socket may bring, beside the head.
    assert sum(read) < 2 * 262_144
    assert receiver.flooded_bytes < 64 * 1_048_576


def test_headers_without_end_are_not_read_to_their_end(receiver: Receiver) -> None:
    many = [f"x-{number}: y" for number in range(200)]
    receiver.plan("/many", answers(200, *many))
    receiver.plan("/long", answers(200, "x: " + "y" * 200_000))
    for path in ("/many", "/long"):
        (answer,) = post(poster(TRUSTING, Names(["127.0.0.1"])), receiver.url(path))
        assert isinstance(answer, NoResponse)


def test_a_connection_is_used_again(receiver: Receiver) -> None:
    names = Names(["127.0.0.1"])
    found = post(poster(TRUSTING, names), receiver.url(), times=5)
    assert [answer.status for answer in found if isinstance(answer, Response)] == [200] * 5
    assert (receiver.connections, names.asked) == (1, 1)


def test_a_connection_that_was_closed_meanwhile_costs_no_attempt(receiver: Receiver) -> None:
    def closes(connection: Any, of: Receiver) -> bool:
        answers(200)(connection, of)
        return False

    receiver.plan("/ok", closes, closes)
    found = post(poster(TRUSTING, Names(["127.0.0.1"])), receiver.url(), times=3)
    assert [answer.status for answer in found if isinstance(answer, Response)] == [200] * 3
    assert receiver.connections == 3


def test_an_announcement_is_not_taken_for_the_answer(receiver: Receiver) -> None:
    def announces(connection: Any, _: Receiver) -> bool:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        return True

    receiver.plan("/early", announces)
    (answer,) = post(poster(TRUSTING, Names(["127.0.0.1"])), receiver.url("/early"))
    assert isinstance(answer, Response) and answer.status == 204
