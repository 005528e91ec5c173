"""Connections that wait a moment to be used again; each leads to an address that was checked."""

from __future__ import annotations

import asyncio

from datp_tasks.outbound.addresses import Origin
from datp_tasks.outbound.connection import Connection

#: Long enough for a busy target, short enough for a name that moves to another address.
IDLE_S_MAX = 3.0
ORIGINS_MAX = 256


class ConnectionPool:
    """Used by one event loop. What waits too long is closed."""

    def __init__(self, per_origin_max: int) -> None:
        self._per_origin_max = per_origin_max
        #: Since when each of them waits, the longest first.
        self._waiting: dict[Origin, list[tuple[float, Connection]]] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None

    def take(self, origin: Origin) -> Connection | None:
        """The one that was used last."""
        waiting = self._waiting.get(origin, [])
        oldest_s = asyncio.get_running_loop().time() - IDLE_S_MAX
        while waiting:
            since_s, connection = waiting.pop()
            if since_s >= oldest_s and connection.is_usable:
                return connection
            connection.abort()
        self._waiting.pop(origin, None)
        return None

    def keep(self, origin: Origin, connection: Connection) -> None:
        waiting = self._waiting.get(origin, [])
        is_crowded = not waiting and len(self._waiting) >= ORIGINS_MAX
        if is_crowded or len(waiting) >= self._per_origin_max or not connection.is_open:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        waiting.append((loop.time(), connection))
        self._waiting[origin] = waiting
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(IDLE_S_MAX, self._sweep)

    def close(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        waiting, self._waiting = self._waiting, {}
        for _, connection in (each for group in waiting.values() for each in group):
            connection.abort()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        oldest_s = loop.time() - IDLE_S_MAX
        for origin, waiting in list(self._waiting.items()):
            while waiting and waiting[0][0] < oldest_s:
                waiting.pop(0)[1].abort()
            if not waiting:
                del self._waiting[origin]
        self._sweep_timer = loop.call_later(IDLE_S_MAX, self._sweep) if self._waiting else None
