"""One POST to an address that nobody trusts: checked, pinned, with one deadline for everything.

The connection goes to an address that was checked, whatever the name service says a moment later.
Redirects are not followed, a proxy of the environment is not used, of the answer only its
beginning is read, and the deadline counts from the question for the address to the last header.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from datp_tasks.errors import WebhookInvalid
from datp_tasks.settings import Settings
from datp_tasks.webhooks.addresses import Target, check_addresses, target_of
from datp_tasks.webhooks.connection_pool import Connection, Idle
from datp_tasks.webhooks.resolver import Resolve

HEADER_LINES_MAX = 100
#: So much of an answer is kept for people, and so long is waited for its body.
EXCERPT_BYTES_MAX = 1_024
BODY_S_MAX = 0.25

#: Opens a connection to an address and a port; only tests use another one than asyncio's.
Open = Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    #: Names in lower case.
    headers: Mapping[str, str]
    #: The beginning of the body, where that may help.
    excerpt: str = ""


class NotSent(Exception):
    """There is no answer; the message says why. What was sent may have arrived all the same."""


class Poster:
    def __init__(
        self,
        settings: Settings,
        resolve: Resolve,
        open_connection: Open | None = None,
        *,
        keeps_connections: bool = True,
    ) -> None:
        self._settings = settings
        self._keeps_connections = keeps_connections
        self._resolve = resolve
        self._open = open_connection or asyncio.open_connection
        self._idle = Idle(settings.webhook_workers)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send it once; NotSent if there is no answer in time."""
        limit_s = self._settings.webhook_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                target = target_of(url, self._settings)
                exchange = await self._exchange(target, _request(target, headers, body))
        except TimeoutError:
            raise NotSent(f"no answer within {limit_s:g} s") from None
        except WebhookInvalid as error:
            raise NotSent(str(error)) from None
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise NotSent(f"{type(error).__name__}: {error}") from None
        return await self._end(target, exchange)

    def close(self) -> None:
        self._idle.close()

    async def _exchange(self, target: Target, request: bytes) -> _Exchange:
        kept = self._idle.take((target.scheme, target.host, target.port))
        if kept is not None:
            try:
                return await _ask(kept, request)
            except (OSError, asyncio.IncompleteReadError) as error:
                if getattr(error, "partial", b""):
                    raise
                # It was closed while it waited. The receiver knows the id, should it have read it.
        return await _ask(await self._connect(target), request)

    async def _connect(self, target: Target) -> Connection:
        addresses = await self._resolve(target.host, target.port)
        check_addresses(target, addresses, self._settings)
        tls: dict[str, Any] = {}
        if target.scheme == "https":
            tls = {"ssl": _tls(), "server_hostname": target.host}
        trouble: Exception = OSError("there is no address")
        for address in addresses:
            try:
                async with asyncio.timeout(self._settings.webhook_connect_s):
                    return Connection(*await self._open(address, target.port, **tls))
            except TimeoutError:
                trouble = OSError(f"{address} does not let anybody connect")
            except OSError as error:
                trouble = error
        raise trouble

    async def _end(self, target: Target, exchange: _Exchange) -> Answer:
        """The answer is known; of its body only a little is read, and not for long."""
        connection, status, headers = exchange.connection, exchange.status, exchange.headers
        is_kept = False
        try:
            length = _length(status, headers)
            limit = self._settings.webhook_answer_bytes_max
            if length is not None and length <= limit:
                body, is_whole = await _read(connection.reader, length)
            else:
                body, is_whole = (await _read(connection.reader, EXCERPT_BYTES_MAX))[0], False
            is_kept = is_whole and self._keeps_connections and _stays_open(headers)
        finally:
            if is_kept:
                self._idle.keep((target.scheme, target.host, target.port), connection)
            else:
                connection.close()
        return Answer(status, headers, body[:EXCERPT_BYTES_MAX].decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Sent, and the head of the answer has come; its body may be on its way."""

    connection: Connection
    status: int
    headers: Mapping[str, str]


async def _ask(connection: Connection, request: bytes) -> _Exchange:
    try:
        connection.writer.write(request)
        await connection.writer.drain()
        return _Exchange(connection, *await _head(connection.reader))
    except BaseException:
        connection.close()
        raise


def _request(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"POST {target.path} HTTP/1.1", f"host: {target.host_header}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(body)}", "accept: */*", "", ""]
    return "\r\n".join(lines).encode("ascii") + body


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers; answers that only announce another one are passed over."""
    for _ in range(10):
        version, _, rest = (await _line(reader)).partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not code.isdecimal():
            raise ValueError("the answer is not HTTP")
        # The version under a name that no header can have.
        headers = {"": version}
        for _ in range(HEADER_LINES_MAX):
            line = await _line(reader)
            if not line:
                break
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        else:
            raise ValueError(f"the answer has more than {HEADER_LINES_MAX} headers")
        if int(code) >= 200:
            return int(code), headers
    raise ValueError("the answer never comes to its point")


async def _line(reader: asyncio.StreamReader) -> str:
    line = await reader.readuntil(b"\n")
    return line.decode("latin-1").strip("\r\n")


def _length(status: int, headers: Mapping[str, str]) -> int | None:
    """How long the body is, or None if that is not said in a way that is simple."""
    if status in (204, 304):
        return 0
    length = headers.get("content-length", "")
    is_plain = length.isdecimal() and len(length) < 16 and "transfer-encoding" not in headers
    return int(length) if is_plain else None


def _stays_open(headers: Mapping[str, str]) -> bool:
    return headers[""] == "HTTP/1.1" and headers.get("connection", "").lower() != "close"


async def _read(reader: asyncio.StreamReader, count: int) -> tuple[bytes, bool]:
    """Up to so many bytes, and whether they came soon."""
    body = b""
    try:
        async with asyncio.timeout(BODY_S_MAX):
            while len(body) < count:
                more = await reader.read(count - len(body))
                if not more:
                    break
                body += more
    except (TimeoutError, OSError):
        pass
    return body, len(body) == count


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes long, so it is done once."""
    return ssl.create_default_context()
