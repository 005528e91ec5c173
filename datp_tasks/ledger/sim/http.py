"""Just enough HTTP/1.1 for the stand-in: requests with a length, answers in JSON, keep-alive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

HEAD_BYTES_MAX = 65_536
BODY_BYTES_MAX = 80_000_000


@dataclass(frozen=True, slots=True)
class SimRequest:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body or b"null")
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    #: None: no body at all.
    value: Any = None
    raw: bytes | None = None
    #: Send only half of it, then drop the connection.
    cut: bool = False
    delay_s: float = 0.0

    def encoded(self) -> bytes:
        body = self.raw
        if body is None:
            body = b"" if self.value is None else json.dumps(self.value).encode()
        phrase = HTTPStatus(self.status).phrase
        head = f"HTTP/1.1 {self.status} {phrase}\r\nContent-Length: {len(body)}\r\n"
        data = f"{head}Content-Type: application/json\r\n\r\n".encode() + body
        return data[: max(1, len(data) - len(body) // 2 - 1)] if self.cut else data


#: None: drop the connection without a word.
Handler = Callable[[SimRequest], Awaitable[Reply | None]]


async def serve_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handler
) -> None:
    try:
        while (request := await _read(reader)) is not None:
            reply = await handle(request)
            if reply is None:
                writer.transport.abort()
                return
            if reply.delay_s:
                await asyncio.sleep(reply.delay_s)
            writer.write(reply.encoded())
            await writer.drain()
            if reply.cut:
                break
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        # Not a client that can be served.
        writer.transport.abort()
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader) -> SimRequest | None:
    """The next request of the connection; None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length") or 0)
    if not 0 <= length <= BODY_BYTES_MAX:
        raise ValueError("too long")
    body = await reader.readexactly(length) if length else b""
    parts = urlsplit(target)
    return SimRequest(method, parts.path, parse_qs(parts.query), headers, body)
