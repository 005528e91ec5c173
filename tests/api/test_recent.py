"""What anyone may ask without a key is worked out once for all who ask, and kept for a moment."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from datp_tasks.api.recent import Recent
from datp_tasks.api.threads import Threads
from tests.support.api_house import ApiHouse


class Work:
    """Counts how often it is done, and is held until it may go on."""

    def __init__(self) -> None:
        self.times = 0
        self.may_go = threading.Event()

    def __call__(self) -> int:
        self.times += 1
        assert self.may_go.wait(5)
        return self.times


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(4)
    yield made
    made.close()


def test_all_who_ask_at_once_wait_for_one_answer(threads: Threads) -> None:
    work = Work()

    async def ask() -> list[int]:
        recent = Recent(work, threads, keep_s=0)
        asked = [asyncio.create_task(recent.get()) for _ in range(20)]
        await asyncio.sleep(0.02)
        work.may_go.set()
        return [*await asyncio.gather(*asked), await recent.get()]

    # The last one came when the first answer was good no more.
    assert asyncio.run(ask()) == [1] * 20 + [2]


def test_an_answer_is_good_for_a_moment_and_no_longer(threads: Threads) -> None:
    work = Work()
    work.may_go.set()

    async def ask() -> list[int]:
        recent = Recent(work, threads, keep_s=0.1)
        found = [await recent.get() for _ in range(5)]
        await asyncio.sleep(0.12)
        return [*found, await recent.get()]

    assert asyncio.run(ask()) == [1] * 5 + [2]


def test_one_who_goes_away_does_not_take_the_answer_from_the_others(threads: Threads) -> None:
    work = Work()

    async def ask() -> int:
        recent = Recent(work, threads)
        first, second = (asyncio.create_task(recent.get()) for _ in range(2))
        await asyncio.sleep(0.02)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        work.may_go.set()
        return await second

    assert asyncio.run(ask()) == 1


def test_a_flood_without_a_key_looks_at_the_servers_once_a_second(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, looks = house.services.health.servers, 0
    look = servers._work

    def counted() -> tuple[bool, bool]:
        nonlocal looks
        looks += 1
        return look()

    monkeypatch.setattr(servers, "_work", counted)
    client, began_s = house.client(), time.monotonic()
    answers = {client.get("/readyz").status_code for _ in range(30)}
    assert answers == {200}
    assert looks <= 1 + (time.monotonic() - began_s)
