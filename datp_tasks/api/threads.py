"""Threads for what waits for a server, so that the event loop does not.

They are few, and a query can be slow: so owners take turns, and one alone never has all of them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: Of the threads, one owner has at most this part at a time.
OWNER_SHARE = 2 / 3

_owner: ContextVar[str] = ContextVar("owner", default="")


@contextmanager
def acting_for(owner: str) -> Iterator[None]:
    """What is run in threads meanwhile, in this task, is the owner's."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


class Threads:
    def __init__(self, threads_max: int) -> None:
        self._shared = ThreadPoolExecutor(threads_max, thread_name_prefix="datp-api")
        self._own: list[ThreadPoolExecutor] = []
        self._turns = _Turns(threads_max)

    def lanes(self, count: int) -> ThreadPoolExecutor:
        """Threads for one kind of work, which slow work of another kind cannot take away."""
        made = ThreadPoolExecutor(count, thread_name_prefix="datp-lane")
        self._own.append(made)
        return made

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        owner = _owner.get()
        await self._turns.take(owner)
        # Its turn ends with the work, also if the one who asked for it has gone.
        done = loop.run_in_executor(self._shared, partial(work, *args, **kwargs))
        done.add_done_callback(lambda _: self._turns.give_back(owner))
        return await asyncio.shield(done)

    def close(self) -> None:
        for executor in (self._shared, *self._own):
            executor.shutdown(wait=True)


class _Turns:
    """Who is next: owners in turn, and of each its oldest request."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._owner_max = max(1, int(count * OWNER_SHARE))
        self._running: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, owner: str) -> None:
        if self._may_run(owner) and owner not in self._waiting:
            self._start(owner)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(owner)
            raise

    def give_back(self, owner: str) -> None:
        self._free += 1
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        self._next()

    def _may_run(self, owner: str) -> bool:
        # What no owner asked for (a look after long polls) is ours, and is not held back.
        held = self._running.get(owner, 0)
        return self._free > 0 and (not owner or held < self._owner_max)

    def _start(self, owner: str) -> None:
        self._free -= 1
        self._running[owner] = self._running.get(owner, 0) + 1

    def _next(self) -> None:
        for owner in list(self._waiting):
            if not self._free:
                return
            waiting = self._waiting[owner]
            while waiting and waiting[0].done():
                # Cancelled meanwhile.
                waiting.popleft()
            if waiting and self._may_run(owner):
                self._start(owner)
                waiting.popleft().set_result(None)
                self._waiting.move_to_end(owner)
            if not waiting:
                del self._waiting[owner]
