"""An answer that is asked for by many, without a key: made once, and shown for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from datp_tasks.api.threads import Threads

T = TypeVar("T")

KEEP_S = 1.0


class Recent(Generic[T]):
    """However many ask at once, one thread does the work, and at most once in `keep_s`."""

    def __init__(self, work: Callable[[], T], threads: Threads, *, keep_s: float = KEEP_S) -> None:
        self._work = work
        self._threads = threads
        self._keep_s = keep_s
        self._made: asyncio.Task[T] | None = None
        self._good_until_s = 0.0

    async def get(self) -> T:
        made = self._made
        if made is None or (made.done() and self._good_until_s <= time.monotonic()):
            made = self._made = asyncio.create_task(self._make())
        # Shielded: one who goes away must not take the answer from the others.
        return await asyncio.shield(made)

    async def _make(self) -> T:
        try:
            return await self._threads.run(self._work)
        finally:
            self._good_until_s = time.monotonic() + self._keep_s
