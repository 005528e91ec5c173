"""Asking for the addresses of a host, without holding up the event loop.

The name service of the system blocks a thread, for half a minute if it must. So a client that has
many requests under way gets threads of its own for that, as many as it can have requests.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

#: From a host and a port to all of its addresses.
Resolve = Callable[[str, int], Awaitable[list[str]]]


class SystemResolver:
    def __init__(self, threads_max: int) -> None:
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="datp-names")

    async def __call__(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _addresses, host, port)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


async def resolve_on_loop(host: str, port: int) -> list[str]:
    """With the threads of the event loop."""
    return await asyncio.get_running_loop().run_in_executor(None, _addresses, host, port)


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))
