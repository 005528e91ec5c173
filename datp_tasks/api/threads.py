"""Threads for what waits for a server, so that the event loop does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    def __init__(self, threads_max: int) -> None:
        self._shared = ThreadPoolExecutor(threads_max, thread_name_prefix="datp-api")
        self._own: list[ThreadPoolExecutor] = []

    def lanes(self, count: int) -> ThreadPoolExecutor:
        """Threads for one kind of work, which slow work of another kind cannot take away."""
        made = ThreadPoolExecutor(count, thread_name_prefix="datp-lane")
        self._own.append(made)
        return made

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._shared, partial(work, *args, **kwargs))

    def close(self) -> None:
        for executor in (self._shared, *self._own):
            executor.shutdown(wait=True)
