"""One connection to an address that was checked: bytes out, one response in."""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Awaitable, Callable
from functools import cache
from typing import cast

from datp_tasks.outbound.addresses import Target
from datp_tasks.outbound.response_reader import ResponseInvalid, ResponseReader


class Connection(asyncio.Protocol):
    """Used by one event loop, for one request after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._done: asyncio.Future[None] | None = None
        self._body_timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_usable(self) -> bool:
        """Whether it is open and silent: bytes that wait here answer no request of ours."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    async def ask(self, data: bytes, reader: ResponseReader) -> None:
        """Send it, and wait until the reader is done. OSError or ResponseInvalid if it never is."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection was closed")
        self._reader, self._done = reader, asyncio.get_running_loop().create_future()
        self._transport.write(data)
        try:
            await self._done
        finally:
            self._reader = self._done = None
            if self._body_timer is not None:
                self._body_timer.cancel()
                self._body_timer = None

    def abort(self) -> None:
        """Close it at once: nothing that is left to be read or sent matters."""
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        reader, done = self._reader, self._done
        if reader is None or done is None or done.done():
            # Not asked for: it must never be taken for the response to the next request.
            self.abort()
            return
        try:
            is_done = reader.feed(data)
        except ResponseInvalid as error:
            done.set_exception(error)
            return
        if is_done:
            done.set_result(None)
        elif reader.is_enough and self._body_timer is None:
            loop = asyncio.get_running_loop()
            self._body_timer = loop.call_later(reader.limits.excerpt_s_max, self._enough, done)

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionResetError("the connection was closed"))

    def _end(self, error: Exception | None) -> None:
        reader, done = self._reader, self._done
        if reader is None or done is None or done.done():
            return
        if error is not None and not reader.is_enough:
            done.set_exception(error)
            return
        try:
            reader.end()
        except ResponseInvalid as invalid:
            done.set_exception(invalid)
        else:
            done.set_result(None)

    @staticmethod
    def _enough(done: asyncio.Future[None]) -> None:
        if not done.done():
            done.set_result(None)


#: Opens a connection to an address of a target. Only tests use another one than the next.
Connect = Callable[[str, Target], Awaitable[Connection]]


async def open_connection(address: str, target: Target) -> Connection:
    """Connect to just this address; the certificate must be for the name of the target."""
    is_tls = target.scheme == "https"
    _, connection = await asyncio.get_running_loop().create_connection(
        Connection,
        address,
        target.port,
        ssl=_tls() if is_tls else None,
        server_hostname=target.host if is_tls else None,
    )
    return connection


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes long, so it is done once."""
    return ssl.create_default_context()
