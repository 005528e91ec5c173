"""Container of the standard library that keep one deadline, and those that wait to be used again.

A timeout of a socket starts anew with every byte, so an answer that drips would never end. Here
every wait is only as long as what is left until the deadline.
"""

from __future__ import annotations

import functools
import io
import select
import socket
import ssl
import threading
import time
from http.client import HTTPConnection, HTTPSConnection
from typing import Any

#: Scheme, host and port.
Origin = tuple[str, str, int | None]

#: A connection that was idle for longer is not used again: its other side may have closed it.
IDLE_S_MAX = 3.0
IDLE_MAX = 64


class Deadline:
    """A moment of the monotonic clock at which everything is over."""

    def __init__(self, give_up_s: float) -> None:
        self.give_up_s = give_up_s

    def left_s(self) -> float:
        return self.give_up_s - time.monotonic()

    def wait_s(self) -> float:
        """How long one wait may take; TimeoutError if nothing is left."""
        left_s = self.left_s()
        if left_s <= 0:
            raise TimeoutError("its time is over")
        return left_s

    def watch(self, connection: HTTPConnection) -> None:
        """Let the socket of this connection keep the deadline."""
        current: Any = connection.sock
        inner = current.inner if isinstance(current, TimedSocket) else current
        # http.client only ever calls the three methods below.
        connection.sock = TimedSocket(inner, self)


class TimedSocket:
    """What http.client needs of a socket, with every wait cut to what is left."""

    def __init__(self, inner: socket.socket, deadline: Deadline) -> None:
        self.inner = inner
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self.inner.settimeout(self._deadline.wait_s())
        self.inner.sendall(data)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self.inner, self._deadline))

    def close(self) -> None:
        self.inner.close()


class _TimedReader(io.RawIOBase):
    def __init__(self, inner: socket.socket, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._inner.settimeout(self._deadline.wait_s())
        return self._inner.recv_into(buffer)


def open_connection(origin: Origin, deadline: Deadline, connect_s: float) -> HTTPConnection:
    scheme, host, port = origin
    timeout_s = min(connect_s, deadline.wait_s())
    connection: HTTPConnection
    if scheme == "https":
        connection = HTTPSConnection(host, port, timeout=timeout_s, context=_tls())
    elif scheme == "http":
        connection = HTTPConnection(host, port, timeout=timeout_s)
    else:
        raise ValueError(f"not an address of the web: {scheme}://{host}")
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


@functools.cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes long, so it is done once."""
    return ssl.create_default_context()


class Idle:
    """Container that can be used again, the one used last first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Origin, list[tuple[float, HTTPConnection]]] = {}

    def take(self, origin: Origin) -> HTTPConnection | None:
        while True:
            with self._lock:
                waiting = self._waiting.get(origin)
                if not waiting:
                    return None
                since_s, connection = waiting.pop()
            if time.monotonic() - since_s <= IDLE_S_MAX and not _is_closed(connection):
                return connection
            connection.close()

    def keep(self, origin: Origin, connection: HTTPConnection) -> None:
        with self._lock:
            waiting = self._waiting.setdefault(origin, [])
            waiting.append((time.monotonic(), connection))
            surplus = waiting[:-IDLE_MAX]
            del waiting[:-IDLE_MAX]
        for _, old in surplus:
            old.close()

    def close(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for _, connection in (each for group in waiting.values() for each in group):
            connection.close()


def _is_closed(connection: HTTPConnection) -> bool:
    """Whether the other side has closed it (or says something nobody asked for)."""
    current: Any = connection.sock
    inner = current.inner if isinstance(current, TimedSocket) else current
    return inner is None or bool(select.select([inner], [], [], 0)[0])
