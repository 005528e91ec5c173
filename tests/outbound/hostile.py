"""A server that says just the bytes it was told to say, one answer after the other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO


class Last(bytes):
    """After this answer the server closes the connection."""


class HostileServer:
    """Answers one request after the other; None closes the connection instead."""

    def __init__(self, *answers: bytes | None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = threading.Event()
        #: Set when a client hung up while it was being answered.
        self.hung_up = threading.Event()
        #: How long to wait between two bytes of an answer.
        self.drip_s = 0.0
        self._answers = list(answers)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def close(self) -> None:
        self.closed.set()
        # A listener that is only closed would let its thread wait for ever.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while request := _read(stream):
                with self._lock:
                    self.requests.append(request)
                    answer = self._answers.pop(0) if self._answers else None
                if answer is None:
                    return
                try:
                    self._say(connection, answer)
                except OSError:
                    self.hung_up.set()
                    return
                if isinstance(answer, Last):
                    return

    def _say(self, connection: socket.socket, answer: bytes) -> None:
        if not self.drip_s:
            connection.sendall(answer)
            return
        for byte in answer:
            if self.closed.wait(self.drip_s):
                return
            connection.sendall(bytes([byte]))


def _read(stream: BinaryIO) -> bytes:
    head = b""
    try:
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            if not line:
                return b""
            head += line
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        return head + stream.read(int(length or 0))
    except OSError:
        return b""


@contextmanager
def hostile(*answers: bytes | None) -> Iterator[HostileServer]:
    server = HostileServer(*answers)
    try:
        yield server
    finally:
        server.close()
