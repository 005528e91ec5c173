"""The event feed over HTTP: pages, long polls, streams, CloudEvents."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from datp_tasks import Pipeline
from datp_tasks.api.event_pages import Shape
from datp_tasks.api.event_streams import EventStreams, Tail
from datp_tasks.api.threads import Threads
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.sealed import MASK
from datp_tasks.record.event_feed import FeedPage, TransactionEvent
from datp_tasks.record.feed_places import BEGINNING, FeedCursor, FeedNames, FeedPlace, OldPlaces
from datp_tasks.testing import Kit
from tests.docs.docs_blocks import blocks
from tests.support.api_house import ApiHouse
from tests.support.eventually import eventually

CONSTANTS = {
    "api.event_pages.HEARTBEAT_S": 0.2,
    "api.event_streams.TICK_MS": 20,
    "api.event_streams.STREAMS_MAX": 260,
}

STREAM = {"Accept": "text/event-stream"}
Lines = Iterator[dict[str, str]]


def submit(client: httpx.Client, number: int = 1) -> str:
    wanted = {"pipeline": "echo", "input": {"n": number}, "metadata": {"m": 1}}
    return str(client.post("/v1/transactions", json=wanted).json()["txId"])


def all_events(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    return list(client.get("/v1/events", params=params).json()["events"])


@contextmanager
def stream(client: httpx.Client, **options: Any) -> Iterator[Lines]:
    """The messages of a stream, as a browser reads them; beats have no data."""
    headers = STREAM | options.pop("headers", {})
    with client.stream("GET", "/v1/events", headers=headers, timeout=10, **options) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["vary"] == "Accept"
        yield _messages(response)


def _messages(response: httpx.Response) -> Lines:
    found: dict[str, str] = {}
    for line in response.iter_lines():
        if not line:
            yield found
            found = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            found[name] = value


def with_data(messages: Lines, count: int) -> list[dict[str, Any]]:
    found = []
    for each in messages:
        if "data" in each:
            found.append(each)
        if len(found) == count:
            break
    return found


def test_the_commands_of_the_page_work(house: ApiHouse) -> None:
    key = house.new_key(house.new_owner("acme"))
    submit(house.client(key=key))
    [block] = [each for each in blocks() if (each.page, each.language) == ("docs/events.md", "sh")]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        env={"PATH": os.environ["PATH"], "DATP_URL": house.url, "DATP_KEY": key},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "retry: 1000" in done.stdout
    assert '"specversion":"1.0"' in done.stdout.replace(" ", "")


# Pages.


def test_pages_go_on_at_the_cursor(acme: httpx.Client, zeta: httpx.Client) -> None:
    tx_ids = [submit(acme, n) for n in range(3)]
    submit(zeta)
    seen, cursor = [], None
    while True:
        params = {"limit": 2} | ({"after": cursor} if cursor else {})
        page = acme.get("/v1/events", params=params).json()
        seen += page["events"]
        cursor = page["nextCursor"]
        if not page["hasMore"]:
            break
    assert [(e["type"], e["data"]["txId"]) for e in seen] == [
        (f"transaction.{word}", tx_id) for tx_id in tx_ids for word in ("accepted", "completed")
    ]
    assert acme.get("/v1/events", params={"after": cursor}).json()["events"] == []
    assert all_events(acme, after=seen[2]["cursor"]) == seen[3:]
    last = seen[-1]
    assert last["data"]["output"] == {"echo": {"n": 2}}
    assert last["data"]["metadata"] == {"m": 1}


def test_types_can_be_chosen_and_latest_begins_now(acme: httpx.Client) -> None:
    first = submit(acme)
    assert [e["data"]["txId"] for e in all_events(acme, type="transaction.completed")] == [first]
    page = acme.get("/v1/events", params={"after": "latest"}).json()
    assert page["events"] == []
    second = submit(acme)
    found = all_events(acme, after=page["nextCursor"])
    assert {e["data"]["txId"] for e in found} == {second}
    refused = acme.get("/v1/events", params={"type": "transaction.paid"})
    assert (refused.status_code, "transaction.paid" in refused.text) == (422, True)


def test_an_operator_sees_all_without_payloads_of_others(
    acme: httpx.Client, ops: httpx.Client, zeta: httpx.Client
) -> None:
    before = ops.get("/v1/events", params={"after": "latest"}).json()["nextCursor"]
    tx_id = submit(acme)
    other = submit(zeta)
    found = all_events(ops, after=before)
    assert {e["data"]["txId"] for e in found} == {tx_id, other}
    owner = next(e["owner"] for e in found if e["data"]["txId"] == tx_id)
    [_, end] = all_events(ops, after=before, owner=owner)
    assert (end["data"]["output"], end["data"]["status"]) == (MASK, "success")
    refused = acme.get("/v1/events", params={"owner": "zeta-0"})
    assert refused.status_code == 403


def test_what_is_sealed_is_opened_for_its_owner_only(
    kit: Kit, house: ApiHouse, ops: httpx.Client
) -> None:
    kit.use(Pipeline("sealed", sealed=True).step("t/echo").build())
    owner = house.new_owner("acme")
    acme = house.client(owner)
    acme.post("/v1/transactions", json={"pipeline": "sealed", "input": {"card": "4111"}})
    [_, end] = all_events(acme)
    assert end["data"]["output"] == {"echo": {"card": "4111"}}
    [_, hidden] = all_events(ops, owner=owner)
    assert hidden["data"]["output"] == MASK
    viewer = house.client(owner, Role.VIEWER)
    assert all_events(viewer, owner=owner)[-1]["data"]["output"] == MASK


@pytest.mark.parametrize("how", ["accept", "format"])
def test_cloud_events(acme: httpx.Client, how: str) -> None:
    tx_id = submit(acme)
    if how == "accept":
        batch = "application/cloudevents-batch+json"
        response = acme.get("/v1/events", headers={"Accept": batch})
        assert response.headers["content-type"] == batch
        assert response.headers["vary"] == "Accept"
        assert response.headers["datp-has-more"] == "false"
        [_, end] = response.json()
        after = response.headers["datp-next-cursor"]
        assert all_events(acme, after=after) == []
    else:
        [_, end] = all_events(acme, format="cloudevents")
        assert acme.get("/v1/events").headers["vary"] == "Accept"
    assert end["specversion"] == "1.0"
    assert (end["type"], end["subject"]) == ("transaction.completed", tx_id)
    assert end["source"].startswith("/datp/owners/acme")
    assert end["data"]["output"] == {"echo": {"n": 1}}


def of_days_ago(house: ApiHouse, cursor: str, days: int) -> str:
    names = house.services.waits.streams.feed.names
    parsed = names.parse(cursor, datetime.now(UTC))
    return names.text(replace(parsed, at=parsed.at - timedelta(days=days)))


def test_cursors_that_are_wrong_or_too_old(house: ApiHouse, acme: httpx.Client) -> None:
    assert acme.get("/v1/events", params={"after": "nonsense"}).status_code == 422
    old = of_days_ago(house, acme.get("/v1/events").json()["nextCursor"], 3_650)
    gone = acme.get("/v1/events", params={"after": old})
    assert gone.status_code == 410
    assert gone.json()["type"].endswith("cursor-too-old")
    assert "Begin anew" in gone.json()["detail"]
    assert acme.get("/v1/events", headers=STREAM | {"Last-Event-ID": old}).status_code == 410


# What others do cannot be counted.


def old_cursor(xact: int, at: datetime) -> str:
    """As earlier releases gave it to their clients."""
    text = f"1.{xact}.0.0.{int(at.timestamp() * 1_000)}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_neither_ids_nor_cursors_count_what_others_do(
    house: ApiHouse, acme: httpx.Client, zeta: httpx.Client
) -> None:
    submit(acme)
    for number in range(3):
        submit(zeta, number)
    submit(acme)
    first, *_, last = events = all_events(acme)
    told = b" ".join(base64.urlsafe_b64decode(each["cursor"] + "==") for each in events)
    for each in house.services.waits.streams.feed.page(None, BEGINNING, 99).events:
        counter = each.place.xact
        assert str(counter).encode() not in told and counter.to_bytes(4) not in told
    assert all(re.fullmatch("evt_[0-9a-f]{24}", each["id"]) for each in events)
    assert len({each["id"] for each in events}) == 4 and first["id"] != last["id"]
    # A text that was not given is no cursor, whatever is changed in it. One of the right length
    # may have been given before a backup was restored.
    cursor = events[1]["cursor"]
    for forged, status in ((cursor[:-2] + "AA", 410), ("A" + cursor[1:], 410), (cursor + "A", 422)):
        if forged != cursor:
            assert acme.get("/v1/events", params={"after": forged}).status_code == status


def test_cursors_of_an_earlier_release_are_read_and_cannot_be_used_to_count(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one could ask, with made-up ones, how far the server has counted."""
    acme = house.client(house.new_owner("acme"))
    tx_id = submit(acme)
    feed = house.services.waits.streams.feed
    now, xact = feed.head().cursor.at, feed.head().xact_max

    def read(names: FeedNames, given: int) -> httpx.Response:
        monkeypatch.setitem(vars(feed), "names", names)
        return acme.get("/v1/events", params={"after": old_cursor(given, now)})

    key = bytes(32)
    upgraded = FeedNames(key, OldPlaces(5, 10**9, 10**9, now - timedelta(days=7)))
    again = read(upgraded, 0).json()["events"]
    assert [each["data"]["txId"] for each in again] == [tx_id] * 2
    # What was handed out before keeps its id for ever.
    assert all(re.fullmatch(r"evt_s\d+", each["id"]) for each in again)
    # One that this server has reached since, and one that it has not.
    beyond = [read(upgraded, given) for given in (6, xact + 10**9)]
    assert {(each.status_code, each.json()["detail"]) for each in beyond} == {
        (410, beyond[0].json()["detail"])
    }
    assert "Begin anew" in beyond[0].json()["detail"]
    # While processes of the release before still hand them out, and for a week after that.
    for left in (timedelta(days=1), timedelta(days=-6)):
        mixed = FeedNames(key, OldPlaces(0, 1, 0, now + left))
        assert read(mixed, xact - 1).status_code == 200
    # Where nothing was accepted before, none were handed out.
    assert read(FeedNames(key, OldPlaces(0, 0, 0, now)), xact - 1).status_code == 410


def test_while_two_releases_run_both_read_each_others_cursors_and_call_events_alike(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A balancer sends a client to either; what it has handled must not come back renamed."""
    acme = house.client(house.new_owner("acme"))
    submit(acme)
    feed = house.services.waits.streams.feed
    now = feed.head().cursor.at

    def told(names: FeedNames) -> tuple[list[str], list[str]]:
        monkeypatch.setitem(vars(feed), "names", names)
        page = acme.get("/v1/events").json()
        cursors = [each["cursor"] for each in page["events"]] + [page["nextCursor"]]
        return [each["id"] for each in page["events"]], cursors

    # Rows that were being committed when the migration looked are above what it saw.
    mixed = FeedNames(bytes(32), OldPlaces(0, 1, 0, now + timedelta(days=9_999)), now=now)
    ids, cursors = told(mixed)
    assert all(re.fullmatch(r"evt_s\d+", each) for each in ids)
    for each in cursors:
        text = base64.urlsafe_b64decode(each + "=" * (-len(each) % 4)).decode()
        assert re.fullmatch(r"1\.\d+\.[01]\.\d+\.\d+", text)
        assert acme.get("/v1/events", params={"after": each}).status_code == 200
    monkeypatch.setattr(FeedNames, "is_mixed", lambda self: False)
    later, hidden = told(mixed)
    assert later == ids and set(hidden).isdisjoint(cursors)


# Waiting.


def test_a_cursor_of_another_server_is_refused_while_others_wait(
    house: ApiHouse, acme: httpx.Client
) -> None:
    """It would be told nothing until this server has counted as far as the other one."""
    submit(acme)
    ahead = ahead_of(house, acme.get("/v1/events").json()["nextCursor"])
    with stream(acme) as messages:
        next(messages)
        next(messages)
        answer = acme.get("/v1/events", params={"after": ahead, "wait": 1})
        assert answer.status_code == 410


def test_a_long_poll_ends_with_the_news(acme: httpx.Client) -> None:
    cursor = acme.get("/v1/events").json()["nextCursor"]
    timer = threading.Timer(0.3, submit, (acme,))
    timer.start()
    began_s = time.monotonic()
    page = acme.get("/v1/events", params={"after": cursor, "wait": 20}).json()
    assert page["events"]
    assert time.monotonic() - began_s < 10
    timer.join()


def test_a_long_poll_without_news_ends_with_a_cursor(acme: httpx.Client) -> None:
    page = acme.get("/v1/events", params={"after": "latest", "wait": 0.3}).json()
    assert page["events"] == []
    assert all_events(acme, after=page["nextCursor"]) == []


# Streams.


def test_a_stream_tells_what_happens_and_goes_on_at_the_last_id(acme: httpx.Client) -> None:
    before = submit(acme)
    with stream(acme) as messages:
        first = next(messages)
        assert first["retry"] == "1000"
        assert "id" in next(messages)
        tx_id = submit(acme)
        [accepted, completed] = with_data(messages, 2)
    assert accepted["event"] == "transaction.accepted"
    assert json.loads(completed["data"])["data"]["txId"] == tx_id != before
    # Also one that was cut before its first event.
    for last, rest in ((first["id"], [accepted, completed]), (accepted["id"], [completed])):
        with stream(acme, headers={"Last-Event-ID": last}) as messages:
            assert with_data(messages, len(rest)) == rest


def test_a_heartbeat_carries_a_cursor(acme: httpx.Client) -> None:
    with stream(acme) as messages:
        beats = [next(messages) for _ in range(3)][1:]
    assert all(set(beat) == {"id"} for beat in beats)
    tx_id = submit(acme)
    with stream(acme, headers={"Last-Event-ID": beats[-1]["id"]}) as messages:
        assert json.loads(with_data(messages, 1)[0]["data"])["data"]["txId"] == tx_id


def test_a_hundred_streams_cost_what_one_costs_and_all_get_everything(
    house: ApiHouse, acme: httpx.Client
) -> None:
    streams = house.services.waits.streams
    got: list[list[str]] = []

    def follow() -> None:
        with stream(acme) as messages:
            next(messages)
            next(messages)
            ready.release()
            found = with_data(messages, 20)
            got.append([each["id"] for each in found])

    ready = threading.Semaphore(0)
    acme._transport = httpx.HTTPTransport(limits=httpx.Limits(max_connections=None))
    threads = [threading.Thread(target=follow) for _ in range(100)]
    for each in threads:
        each.start()
    for _ in threads:
        assert ready.acquire(timeout=30)
    before, began_s = streams.queries, time.monotonic()
    for number in range(10):
        submit(acme, number)
    for each in threads:
        each.join(30)
    ticks = (time.monotonic() - began_s) / 0.02
    assert len(got) == 100
    assert all(each == got[0] for each in got)
    # One query a tick, whatever the number of streams.
    assert streams.queries - before <= ticks + 20
    eventually(lambda: len(streams) == 0)


def test_an_owner_does_not_get_all_places(house: ApiHouse, acme: httpx.Client) -> None:
    shares = house.services.waits.streams.places
    owner = acme.get("/v1/keys").json()["keys"][0]["owner"]
    held = 0
    while shares.take(owner):
        held += 1
    try:
        refused = acme.get("/v1/events", headers=STREAM)
        assert refused.status_code == 429
        assert "event streams" in refused.json()["detail"]
        assert acme.get("/v1/events", params={"wait": 1}).status_code == 429
        # Others find one, and without waiting none is needed.
        assert acme.get("/v1/events").status_code == 200
        other = house.client(house.new_owner("zeta"))
        with stream(other) as messages:
            next(messages)
    finally:
        shares.give_back(owner, held)


def test_a_client_that_left_gives_its_place_back(house: ApiHouse, acme: httpx.Client) -> None:
    with stream(acme) as messages:
        next(messages)
        assert len(house.services.waits.streams) == 1
    eventually(lambda: len(house.services.waits.streams) == 0)


def further(cursor: FeedCursor) -> FeedCursor:
    """As a server gave it that had counted further: another one, or this one before a restore."""
    return replace(cursor, place=cursor.place._replace(xact=cursor.place.xact + 10**9))


def ahead_of(house: ApiHouse, cursor: str) -> str:
    names = house.services.waits.streams.feed.names
    return names.text(further(names.parse(cursor, datetime.now(UTC))))


def test_a_stream_with_a_cursor_of_a_lost_server_is_refused_before_it_begins(
    house: ApiHouse, acme: httpx.Client
) -> None:
    submit(acme)
    ahead = ahead_of(house, acme.get("/v1/events").json()["nextCursor"])
    for given in ({"headers": {"Last-Event-ID": ahead}}, {"params": {"after": ahead}}):
        refused = acme.get(
            "/v1/events",
            headers=STREAM | given.get("headers", {}),
            params=given.get("params"),
        )
        assert refused.status_code == 410
        assert refused.json()["type"].endswith("cursor-too-old")


def test_a_stream_whose_server_is_lost_meanwhile_says_so_and_ends(
    house: ApiHouse, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a backup was restored: the place of the stream is one that is not reached yet."""
    streams = house.services.waits.streams
    lost = threading.Event()
    page_of = type(streams).next_page

    async def next_page(self: Any, owner: Any, after: FeedCursor, *args: Any, **more: Any) -> Any:
        if lost.is_set():
            after = further(after)
        return await page_of(self, owner, after, *args, **more)

    monkeypatch.setattr(type(streams), "next_page", next_page)
    with stream(acme) as messages:
        [_, beat] = [next(messages) for _ in range(2)]
        lost.set()
        rest = [each for each in messages if "event" in each]
    [told] = rest
    problem = json.loads(told["data"])
    assert (told["event"], problem["status"]) == ("problem", 410)
    assert problem["type"].endswith("cursor-too-old")
    assert problem["requestId"]
    # No id: what the client has seen stays what it has seen.
    assert "id" not in told and "id" in beat


def test_a_revoked_key_ends_its_stream(house: ApiHouse) -> None:
    owner = house.new_owner("acme")
    made = house.keys.create(owner, actor=Actor(name="test"))
    client, other = house.client(key=made.text), house.client(owner)
    with stream(other) as kept, stream(client) as messages:
        next(messages)
        house.keys.revoke(made.key.id, actor=Actor(name="test"))
        [told] = [each for each in messages if "event" in each]
        assert (told["event"], json.loads(told["data"])["status"]) == ("problem", 401)
        # Another key of the same owner goes on.
        tx_id = submit(other)
        assert json.loads(with_data(kept, 1)[0]["data"])["data"]["txId"] == tx_id


def test_streams_of_one_owner_share_what_is_written_and_others_see_their_own(
    house: ApiHouse, ops: httpx.Client
) -> None:
    owner = house.new_owner("acme")
    clients = [house.client(owner), house.client(owner, Role.VIEWER), ops]
    got = []
    with ExitStack() as opened:
        # All read the events of this owner, which are written once for each way to show them.
        wanted = {"owner": owner}
        streams = [opened.enter_context(stream(each, params=wanted)) for each in clients]
        clouds = opened.enter_context(stream(clients[0], params={"format": "cloudevents"}))
        for each in (*streams, clouds):
            next(each)
            next(each)
        submit(clients[0], 7)
        for each in (*streams, clouds):
            got.append(json.loads(with_data(each, 2)[1]["data"]))
    own, viewed, watched, cloud = got
    assert own["data"]["output"] == cloud["data"]["output"] == {"echo": {"n": 7}}
    assert viewed["data"]["output"] == watched["data"]["output"] == MASK
    assert (cloud["specversion"], "specversion" in own) == ("1.0", False)


def test_what_is_sealed_is_opened_in_a_stream_and_kept_nowhere(kit: Kit, house: ApiHouse) -> None:
    kit.use(Pipeline("sealed", sealed=True).step("t/echo").build())
    acme = house.client(house.new_owner("acme"))
    with stream(acme) as messages:
        next(messages)
        next(messages)
        acme.post("/v1/transactions", json={"pipeline": "sealed", "input": {"card": "4111"}})
        end = json.loads(with_data(messages, 2)[1]["data"])
        kept = [e for tail in house.services.waits.streams._tails.values() for e in tail.events]
    assert end["data"]["output"] == {"echo": {"card": "4111"}}
    assert [each.texts for each in kept if each.tx_id == end["data"]["txId"]][1] == {}


def test_the_look_for_all_is_in_the_name_of_none(house: ApiHouse, acme: httpx.Client) -> None:
    """Else one owner with many slow requests would keep the streams of all others waiting."""
    streams = house.services.waits.streams
    eventually(lambda: len(streams) == 0 and not streams._tails)
    cursor = acme.get("/v1/events").json()["nextCursor"]
    seen: list[str] = []
    pages = streams.feed.pages

    def noted(wanted: Any, rows_max: int) -> Any:
        seen.extend(streams._threads._turns._running)
        return pages(wanted, rows_max)

    streams.feed.pages = noted  # type: ignore[method-assign]
    try:
        acme.get("/v1/events", params={"after": cursor, "wait": 0.3})
    finally:
        streams.feed.pages = pages  # type: ignore[method-assign]
    assert "" in seen


# What it costs others.


def test_events_are_opened_and_written_by_a_thread(
    acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening what is sealed may ask PostgreSQL, for which the event loop must not wait."""
    submit(acme)
    seen: list[str] = []
    of = Shape.of

    def noted(self: Shape, event: TransactionEvent) -> dict[str, Any]:
        seen.append(threading.current_thread().name)
        return of(self, event)

    monkeypatch.setattr(Shape, "of", noted)
    for accept in ("application/json", "application/cloudevents-batch+json"):
        assert acme.get("/v1/events", headers={"Accept": accept}).status_code == 200
    assert len(seen) == 4
    assert all(name.startswith("datp-api") for name in seen)


def test_a_stream_reads_in_the_name_of_its_owner(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its owner has more than its share of the threads."""
    streams = house.services.waits.streams
    owner = house.new_owner("acme")
    acme = house.client(owner)
    submit(acme)
    seen: list[dict[str, int]] = []
    page = streams.feed.page

    def noted(*given: Any) -> Any:
        seen.append(dict(streams._threads._turns._running))
        return page(*given)

    monkeypatch.setattr(streams.feed, "page", noted)
    cursor = all_events(acme)[0]["cursor"]
    seen.clear()
    with stream(acme, headers={"Last-Event-ID": cursor}) as messages:
        with_data(messages, 1)
    assert seen and all(owner in running for running in seen)


def test_a_full_page_of_which_nothing_is_shown_is_gone_on_from_at_once() -> None:
    """Retention has dropped the rows of a page between two others."""
    cursor = FeedCursor(FeedPlace(7, 0, 0), datetime.now(UTC))

    class Dropped:
        def page(self, *_: Any) -> FeedPage:
            return FeedPage([], cursor, is_full=True)

    async def read() -> tuple[FeedPage, float]:
        threads = Threads(1)
        streams = EventStreams(Dropped(), threads)  # type: ignore[arg-type]
        began_s = time.monotonic()
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        page = await streams.next_page("acme", cursor, 10, wait_s=2, gone=gone)
        took_s = time.monotonic() - began_s
        await streams.close()
        threads.close()
        return page, took_s

    page, took_s = asyncio.run(read())
    assert page.is_full and took_s < 1


@pytest.mark.parametrize(
    ("kind", "whose", "status"),
    [("owner", "own", 410), ("pipeline", "own", 410), ("owner", "other", 200)],
)
def test_a_cursor_may_be_as_old_as_the_shortest_rule(
    kit: Kit, house: ApiHouse, ops: httpx.Client, kind: str, whose: str, status: int
) -> None:
    """What a retention rule has dropped is no silent gap."""
    owner = house.new_owner("acme")
    acme = house.client(owner)
    old = of_days_ago(house, acme.get("/v1/events").json()["nextCursor"], 2)
    assert acme.get("/v1/events", params={"after": old}).status_code == 200
    name = "echo" if kind == "pipeline" else owner if whose == "own" else "zeta-other"
    with kit.connections.engine.begin() as sql:
        query = "INSERT INTO retention_rule VALUES (%(kind)s, %(name)s, 2, now())"
        sql.exec_driver_sql(query, {"kind": kind, "name": name})
    try:
        assert acme.get("/v1/events", params={"after": old}).status_code == status
        # One who reads the events of all owners reads those of the one with the rule, too.
        assert ops.get("/v1/events", params={"after": old}).status_code == 410
    finally:
        with kit.connections.engine.begin() as sql:
            sql.exec_driver_sql("DELETE FROM retention_rule")


def event_of(number: int, chars: int) -> TransactionEvent:
    now = datetime.now(UTC)
    place = FeedPlace(number, 0, number)
    names = FeedNames(bytes(32), OldPlaces(0, 0, 0, now))
    kind = "transaction.completed"
    return TransactionEvent(place, kind, "acme", "t", now, {}, names, data_chars=chars)


def test_the_events_that_are_kept_for_streams_have_a_limit_in_bytes() -> None:
    tail = Tail()
    tail.begin(FeedCursor(FeedPlace(0, 0, 0), datetime.now(UTC)))
    large = [event_of(number, 1_000_000) for number in range(1, 31)]
    for each in large:
        tail.add(FeedPage([each], FeedCursor(each.place, each.at), is_full=False))
    assert list(tail.events) == large[-16:]
    assert tail.start == large[-17].place
    # The one who is further behind reads by itself.
    assert tail.page(FeedCursor(large[0].place, large[0].at), 10) is None
    small = [event_of(number, 100) for number in range(31, 1_031)]
    tail.add(FeedPage(small, FeedCursor(small[-1].place, small[-1].at), is_full=False))
    assert list(tail.events) == small
    assert tail.weight == sum(each.weight for each in small)


def test_a_long_text_is_not_kept_with_its_event(house: ApiHouse, acme: httpx.Client) -> None:
    with stream(acme) as messages:
        next(messages)
        next(messages)
        wanted = {"pipeline": "echo", "input": {"long": "x" * 20_000}}
        acme.post("/v1/transactions", json=wanted)
        end = json.loads(with_data(messages, 2)[1]["data"])
        kept = [e for tail in house.services.waits.streams._tails.values() for e in tail.events]
    accepted, completed = (each for each in kept if each.tx_id == end["data"]["txId"])
    assert (len(accepted.texts), completed.texts) == (1, {})
    assert completed.data_chars > 20_000
