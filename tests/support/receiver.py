"""A receiver of webhooks that behaves as badly as a test wants, one way per path."""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass(frozen=True, slots=True)
class Got:
    """One request, as it came in."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        return self.json["data"]


#: Answers one request on its socket; True keeps the connection for another.
Behaviour = Callable[[socket.socket, "Receiver"], bool]


def answers(status: int, *headers: str, body: bytes = b"") -> Behaviour:
    lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}", *headers, "", ""]

    def answer(connection: socket.socket, _: Receiver) -> bool:
        connection.sendall("\r\n".join(lines).encode() + body)
        return True

    return answer


def hangs(_: socket.socket, receiver: Receiver) -> bool:
    receiver.closed.wait(30)
    return False


def drips(connection: socket.socket, receiver: Receiver) -> bool:
    """A byte now and then: no single wait is long, but all of it never ends."""
    for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"x" * 10_000:
        if receiver.closed.wait(0.02):
            return False
        connection.sendall(bytes([byte]))
    return False


def resets(connection: socket.socket, _: Receiver) -> bool:
    """Everything was read; the answer is a reset of the connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    return False


def loses_its_answer(connection: socket.socket, _: Receiver) -> bool:
    """It has done its work and begins to say so."""
    connection.sendall(b"HTTP/1.1 2")
    return False


def floods(connection: socket.socket, receiver: Receiver) -> bool:
    """A gigabyte, should anybody read it."""
    connection.sendall(b"HTTP/1.1 500 Oh\r\ncontent-length: 1073741824\r\n\r\n")
    for _ in range(1_024):
        connection.sendall(b"x" * 1_048_576)
        receiver.flooded_bytes += 1_048_576
    return False


def is_no_web_server(connection: socket.socket, _: Receiver) -> bool:
    connection.sendall(b"220 smtp.example.com\r\n")
    return False


class Receiver:
    def __init__(self) -> None:
        self.got: list[Got] = []
        self.closed = threading.Event()
        #: How many connections were made.
        self.connections = 0
        self.flooded_bytes = 0
        self._lock = threading.Lock()
        self._planned: dict[str, list[Behaviour]] = defaultdict(list)
        self._always: dict[str, Behaviour] = {}
        receiver = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                receiver.connections += 1
                with suppress(OSError):
                    receiver._talk(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str = "/ok") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def plan(self, path: str, *behaviours: Behaviour) -> None:
        """How the next requests for a path are met; then it is well again."""
        self._planned[path] += behaviours

    def always(self, path: str, behaviour: Behaviour | None) -> None:
        if behaviour is None:
            del self._always[path]
        else:
            self._always[path] = behaviour

    def at(self, path: str) -> list[Got]:
        with self._lock:
            return [each for each in self.got if each.path == path]

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.socket.close()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while True:
                line = stream.readline().decode()
                if not line:
                    return
                path = line.split()[1]
                headers = {}
                while (header := stream.readline().decode().strip()) != "":
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", 0)))
                with self._lock:
                    self.got.append(Got(path, headers, body))
                    planned = self._planned.get(path)
                    well = self._always.get(path, _is_well)
                    behaviour = planned.pop(0) if planned else well
                if not behaviour(connection, self):
                    return


def _is_well(connection: socket.socket, _: Receiver) -> bool:
    connection.sendall(OK)
    return True


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    try:
        yield receiver
    finally:
        receiver.close()
