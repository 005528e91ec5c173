"""What arrives together is done together: one commit, one query, one round trip for many requests.

No request waits for others: the first goes at once, and what arrives while that is being done goes
together next. The work itself runs in a thread, so that the event loop never waits for a server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from datp_tasks.api.threads import Threads

Item = TypeVar("Item")
Answer = TypeVar("Answer")

#: Does the work for many; an answer for each, in the same order. An exception is for all.
Work = Callable[[Sequence[Item]], Sequence[Answer]]


class TooMany(Exception):
    """More are waiting than may."""


class Batcher(Generic[Item, Answer]):
    def __init__(
        self,
        work: Work[Item, Answer],
        threads: Threads,
        *,
        batch_max: int,
        waiting_max: int,
        lanes: int = 1,
    ) -> None:
        self._work = work
        self._executor = threads.lanes(lanes)
        self._batch_max = batch_max
        self._waiting_max = waiting_max
        #: How many batches may be on their way at once.
        self._lanes_free = lanes
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Counted for tests and for the benchmark.
        self.batches = 0

    async def do(self, item: Item) -> Answer:
        """The answer for one; raises what the work raised."""
        if len(self._waiting) >= self._waiting_max:
            raise TooMany
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._lanes_free:
            self._lanes_free -= 1
            task = asyncio.create_task(self._run())
            # The loop itself keeps only weak references to its tasks.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                count = min(len(self._waiting), self._batch_max)
                batch = [self._waiting.popleft() for _ in range(count)]
                self.batches += 1
                try:
                    items = [item for item, _ in batch]
                    answers = await loop.run_in_executor(self._executor, self._work, items)
                except Exception as error:
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for (_, future), answer in zip(batch, answers, strict=True):
                    # The client may have gone.
                    if not future.done():
                        future.set_result(answer)
        finally:
            self._lanes_free += 1
