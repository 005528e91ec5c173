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
        self.executor = ThreadPoolExecutor(threads_max, thread_name_prefix="datp-api")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.executor, partial(work, *args, **kwargs))

    def close(self) -> None:
        self.executor.shutdown(wait=True)
