"""Long polls: an answer as soon as there is news, and never no answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from datp_tasks.testing import Kit
from tests.api.test_api_transactions import submitted
from tests.support.api_house import ApiHouse, api_house
from tests.support.eventually import eventually

CONSTANTS = {"api.waiting.TICK_S": 0.3, "api.waiting.WAITERS_MAX": 400}

Answer = tuple[float, httpx.Response]


def poll(client: httpx.Client, tx_id: str, **params: Any) -> Answer:
    began_s = time.monotonic()
    answer = client.get(f"/v1/transactions/{tx_id}", params={"wait": 10, **params})
    return time.monotonic() - began_s, answer


def poll_meanwhile(
    house: ApiHouse, client: httpx.Client, tx_id: str, act: Callable[[], object], **params: Any
) -> Answer:
    """Do something while a long poll waits."""
    before = len(house.services.waits.polls)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(poll, client, tx_id, **params)
        eventually(lambda: len(house.services.waits.polls) > before)
        act()
        return waiting.result(30)


def without_tick(house: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever misses a publish waits for ever."""
    monkeypatch.setattr(house.services.waits.polls, "_sequences", lambda _: {})


def go(house: ApiHouse, tx_id: str) -> Callable[[], object]:
    return lambda: house.kit.client.set_switch(tx_id, "go", True)


def test_a_long_poll_is_answered_when_the_transaction_ends(
    house: ApiHouse, acme: httpx.Client
) -> None:
    tx_id = submitted(acme, "nap")
    took_s, answer = poll_meanwhile(house, acme, tx_id, go(house, tx_id))
    assert (answer.status_code, answer.json()["status"]) == (200, "success")
    assert took_s < 5


def test_one_that_has_ended_is_answered_at_once(acme: httpx.Client) -> None:
    tx_id = submitted(acme)
    took_s, answer = poll(acme, tx_id, after=1_000)
    assert (answer.json()["status"], took_s < 3) == ("success", True)


def test_progress_is_news_and_what_is_known_is_not(house: ApiHouse, acme: httpx.Client) -> None:
    tx_id = submitted(acme, "nap")
    known = acme.get(f"/v1/transactions/{tx_id}").json()["sequence"]
    took_s, old = poll(acme, tx_id, after=known - 1)
    assert (old.json()["sequence"], took_s < 3) == (known, True)
    _, news = poll_meanwhile(house, acme, tx_id, lambda: house.kit.client.wake(tx_id), after=known)
    found = news.json()
    assert found["sequence"] == known + 1
    # The step reports before it goes to sleep again, and the poll is answered at once.
    assert found["status"] in ("running", "sleeping")
    _, end = poll_meanwhile(house, acme, tx_id, go(house, tx_id))
    assert end.json()["status"] == "success"


def test_without_news_the_status_comes_when_the_time_is_over(acme: httpx.Client) -> None:
    tx_id = submitted(acme, "nap")
    took_s, answer = poll(acme, tx_id, wait=0.3)
    assert (answer.status_code, answer.json()["status"]) == (200, "sleeping")
    assert 0.3 <= took_s < 3


def test_many_may_wait_for_one_transaction(house: ApiHouse, acme: httpx.Client) -> None:
    tx_id = submitted(acme, "nap")
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(poll, acme, tx_id) for _ in range(8)]
        eventually(lambda: len(house.services.waits.polls) == 8)
        go(house, tx_id)()
        answers = [each.result(30)[1].json() for each in waiting]
    assert [each["status"] for each in answers] == ["success"] * 8
    assert len(house.services.waits.polls) == 0


def test_nothing_is_missed_between_looking_and_waiting(
    house: ApiHouse, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends right after it was read and before anybody waits for the bell."""
    tx_id = submitted(acme, "nap")
    services = house.services
    look = services.client.status_many
    ended = threading.Event()

    def look_then_end(tx_ids: Any) -> Any:
        found = look(tx_ids)
        if tx_id in tx_ids and not ended.is_set():
            ended.set()
            go(house, tx_id)()
            # The news is there before what was read is looked at.
            eventually(lambda: any(b.is_set() for b in services.waits.polls._watched[tx_id].bells))
        return found

    monkeypatch.setattr(services.shared.looks, "_work", look_then_end)
    without_tick(house, monkeypatch)
    took_s, answer = poll(acme, tx_id)
    assert (answer.json()["status"], took_s < 5) == ("success", True)


def test_an_answer_comes_although_its_publish_was_lost(
    house: ApiHouse, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house.services.waits.polls, "_on_news", lambda _: None)
    followers = house.services.waits.polls._notifications._followers
    monkeypatch.setattr(house.services.waits.polls._notifications, "_followers", [])
    assert followers
    tx_ids = [submitted(acme, "nap") for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(poll, acme, tx_id) for tx_id in tx_ids]
        eventually(lambda: len(house.services.waits.polls) == 10)
        for tx_id in tx_ids:
            go(house, tx_id)()
        answers = [each.result(30) for each in waiting]
    assert [answer.json()["status"] for _, answer in answers] == ["success"] * 10
    assert max(took_s for took_s, _ in answers) < 8


def test_what_a_later_poll_sees_is_news_to_those_who_wait_already(
    house: ApiHouse, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publish was lost, and the tick thinks that what one poll has seen, all have."""
    waiters = house.services.waits.polls
    monkeypatch.setattr(waiters._notifications, "_followers", [])
    tx_id = submitted(acme, "nap")

    def end_and_look() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(waiters, "_sequences", lambda _: {})
            go(house, tx_id)()
            assert poll(acme, tx_id)[1].json()["status"] == "success"

    took_s, answer = poll_meanwhile(house, acme, tx_id, end_and_look)
    assert (answer.json()["status"], took_s < 5) == ("success", True)


def test_an_answer_comes_although_the_subscription_breaks_all_the_time(
    house: ApiHouse, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick is off: after a gap everybody looks for himself."""
    without_tick(house, monkeypatch)
    redis = house.kit.connections.redis
    tx_id = submitted(acme, "nap")

    def break_and_go() -> None:
        redis.client_kill_filter(_type="pubsub")
        go(house, tx_id)()

    took_s, answer = poll_meanwhile(house, acme, tx_id, break_and_go)
    assert (answer.json()["status"], took_s < 5) == ("success", True)


def test_a_client_that_goes_away_is_forgotten_at_once(house: ApiHouse) -> None:
    owner = house.new_owner("leaver")
    key = house.new_key(owner)
    tx_id = submitted(house.client(key=key), "nap")
    host, port = house.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        request = (
            f"GET /v1/transactions/{tx_id}?wait=30 HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {key}\r\n\r\n"
        )
        sock.sendall(request.encode())
        eventually(lambda: len(house.services.waits.polls) == 1)
    eventually(lambda: len(house.services.waits.polls) == 0, within_s=2)
    # Nobody was told, so nothing is written down.
    assert house.kit.client.status(tx_id).notified_at is None


def test_there_is_a_limit_to_those_who_wait(house: ApiHouse, acme: httpx.Client) -> None:
    tx_id = submitted(acme, "nap")
    waiters = house.services.waits.polls
    count, waiters._places.used = waiters._places.used, 400
    try:
        _, answer = poll(acme, tx_id)
    finally:
        waiters._places.used = count
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")


def test_shutdown_answers_everybody_who_waits(kit: Kit) -> None:
    with ThreadPoolExecutor(5) as pool, api_house(kit) as leaving:
        client = leaving.client("acme")
        tx_id = submitted(client, "nap")
        waiting = [pool.submit(poll, client, tx_id, wait=30) for _ in range(5)]
        eventually(lambda: len(leaving.services.waits.polls) == 5)
        loop = leaving.services.waits.polls._loop
        assert loop is not None
        loop.call_soon_threadsafe(leaving.services.waits.polls.answer_all)
        answers = [each.result(10) for each in waiting]
    assert [answer.json()["status"] for _, answer in answers] == ["sleeping"] * 5
    assert max(took_s for took_s, _ in answers) < 10


def test_seeing_the_end_by_a_long_poll_is_written_down(house: ApiHouse, acme: httpx.Client) -> None:
    tx_id = submitted(acme, "nap")
    poll_meanwhile(house, acme, tx_id, go(house, tx_id))
    eventually(lambda: house.kit.client.status(tx_id).notified_at is not None)
