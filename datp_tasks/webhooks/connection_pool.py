"""Container that wait a moment to be used again; each leads to an address that was checked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

#: Scheme, host and port.
Origin = tuple[str, str, int]

#: Long enough for a busy target, short enough for a name that moves to another address.
IDLE_S_MAX = 3.0
ORIGINS_MAX = 256


@dataclass(slots=True)
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    timer: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing())

    def close(self) -> None:
        """At once: nothing that is left to be read or sent matters."""
        if self.timer is not None:
            self.timer.cancel()
        self.writer.transport.abort()


class Idle:
    """Used by one event loop. What waits too long is closed."""

    def __init__(self, per_origin_max: int) -> None:
        self._per_origin_max = per_origin_max
        self._waiting: dict[Origin, list[Connection]] = {}

    def take(self, origin: Origin) -> Connection | None:
        waiting = self._waiting.get(origin, [])
        while waiting:
            connection = waiting.pop()
            if connection.timer is not None:
                connection.timer.cancel()
            if connection.is_usable:
                return connection
            connection.close()
        self._waiting.pop(origin, None)
        return None

    def keep(self, origin: Origin, connection: Connection) -> None:
        waiting = self._waiting.setdefault(origin, [])
        if len(waiting) >= self._per_origin_max or len(self._waiting) > ORIGINS_MAX:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.timer = loop.call_later(IDLE_S_MAX, self._drop, origin, connection)
        waiting.append(connection)

    def close(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for connection in (each for group in waiting.values() for each in group):
            connection.close()

    def _drop(self, origin: Origin, connection: Connection) -> None:
        waiting = self._waiting.get(origin, [])
        if connection in waiting:
            waiting.remove(connection)
        if not waiting:
            self._waiting.pop(origin, None)
        connection.close()
