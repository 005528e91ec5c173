"""Owners take turns for the threads of an API process; what a client left gives its turn back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from datp_tasks.api.threads import Threads, _Turns, acting_for

Log = list[str]


async def settled() -> None:
    """Whatever can go on has gone on."""
    for _ in range(10):
        await asyncio.sleep(0)


class Queue:
    """One turn at a time, taken by `ask` and given back by `done`."""

    def __init__(self, count: int = 1) -> None:
        self.turns = _Turns(count)
        self.order: Log = []

    def ask(self, owner: str) -> asyncio.Task[None]:
        async def take() -> None:
            await self.turns.take(owner)
            self.order.append(owner)

        return asyncio.create_task(take())

    async def done(self, owner: str) -> None:
        self.turns.give_back(owner)
        await settled()


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 5))

    return run


async def queued(queue: Queue, *owners: str) -> list[asyncio.Task[None]]:
    """The first one has its turn; the others wait, in this order."""
    tasks = [queue.ask(owner) for owner in owners]
    await settled()
    assert queue.order == [owners[0]]
    return tasks


async def drained(queue: Queue) -> Log:
    """Each ends its turn; the order in which they had them."""
    for number in range(100):
        if number == len(queue.order):
            return queue.order
        await queue.done(queue.order[number])
    raise AssertionError("turns without end")


@in_loop
async def test_owners_take_turns_however_many_requests_one_of_them_has() -> None:
    queue = Queue()
    await queued(queue, "large", "large", "large", "large", "small", "third", "small")
    assert await drained(queue) == ["large", "large", "small", "third", "large", "small", "large"]


@in_loop
async def test_a_request_that_was_cancelled_while_it_waited_is_passed_over() -> None:
    queue = Queue()
    tasks = await queued(queue, "large", "large", "small", "small")
    tasks[1].cancel()
    tasks[2].cancel()
    await settled()
    assert await drained(queue) == ["large", "small"]
    # All turns are free again: a new one waits for no other.
    queue.ask("late")
    await settled()
    assert queue.order[-1] == "late"


@in_loop
async def test_a_turn_that_came_as_its_request_was_cancelled_goes_to_the_next() -> None:
    queue = Queue()
    tasks = await queued(queue, "large", "gone", "small")
    # It gets its turn, and its client leaves before it has gone on.
    queue.turns.give_back("large")
    tasks[1].cancel()
    await settled()
    assert queue.order == ["large", "small"]
    await queue.done("small")
    queue.ask("late")
    await settled()
    assert queue.order[-1] == "late"


@in_loop
async def test_one_owner_never_has_every_thread() -> None:
    queue = Queue(3)
    for _ in range(5):
        queue.ask("large")
    await settled()
    assert queue.order == ["large"] * 2
    queue.ask("small")
    await settled()
    assert queue.order == ["large", "large", "small"]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_thread_is_given_back_when_its_work_ends_also_if_the_client_left(leaves: bool) -> None:
    async def run() -> None:
        threads, may_end = Threads(1), threading.Event()
        begun = threading.Event()

        def work() -> None:
            begun.set()
            may_end.wait(5)

        async def ask(what: Callable[[], Any]) -> None:
            with acting_for("acme"):
                await threads.run(what)

        first = asyncio.create_task(ask(work))
        await asyncio.to_thread(begun.wait, 5)
        second: Awaitable[None] = asyncio.create_task(ask(lambda: None))
        if leaves:
            first.cancel()
        await settled()
        # The thread is still at work, whoever waits for it.
        assert threads._turns._free == 0
        may_end.set()
        await asyncio.wait_for(second, 5)
        await asyncio.gather(first, return_exceptions=True)
        await settled()
        assert (threads._turns._free, threads._turns._running) == (1, {})
        threads.close()

    asyncio.run(asyncio.wait_for(run(), 10))
