"""One request: checked, pinned to the address that was checked, with one deadline for everything.

The connection goes to an address that was checked, whatever the name service says a moment later.
Redirects are not followed, and a proxy of the environment is not used. What matters is whether a
request can have reached the server, so the moment before its first byte leaves is a state of its
own: what goes wrong before it is `NotSent`, what goes wrong after it `NoResponse`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from datp_tasks.errors import WebhookInvalid
from datp_tasks.outbound.address_guard import AddressGuard
from datp_tasks.outbound.addresses import Target
from datp_tasks.outbound.connection import Connect, Connection, open_connection
from datp_tasks.outbound.connection_pool import ConnectionPool
from datp_tasks.outbound.messages import Exchange, HttpRequest, NoResponse, NotSent, Response
from datp_tasks.outbound.resolver import Resolve, resolve_on_loop
from datp_tasks.outbound.response_reader import BodyLimits, ResponseInvalid, ResponseReader
from datp_tasks.outbound.trouble import trouble_in_words


@dataclass(frozen=True, slots=True)
class Network:
    """The name service and the way to an address."""

    resolve: Resolve = resolve_on_loop
    connect: Connect = open_connection


def _none(target: Target) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How a client treats the servers that it talks to."""

    connect_s: float
    body: BodyLimits
    #: How many connections to one server may wait to be used again.
    idle_max: int = 0
    #: The server knows requests by an id: one that a kept connection has lost is sent again.
    repeats: bool = False
    #: Sent with every request.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Headers for one server that no other gets to see.
    secret_headers: Callable[[Target], Mapping[str, str]] = field(default=_none, repr=False)


class HttpClient:
    """Used by one event loop. Without connections that wait, by any."""

    def __init__(
        self, guard: AddressGuard, manners: Manners, network: Network | None = None
    ) -> None:
        self._guard = guard
        self._manners = manners
        self._network = network or Network()
        self._pool = ConnectionPool(manners.idle_max)

    async def send(self, request: HttpRequest, within_s: float) -> Exchange:
        """Send it once. Whatever happens, it is over within this time."""
        attempt = _Attempt(request, ResponseReader(self._manners.body, method=request.method))
        deadline = asyncio.timeout(within_s)
        try:
            async with deadline:
                return await self._send(attempt, deadline)
        except TimeoutError as error:
            if attempt.reader.is_enough:
                return attempt.reader.response()
            if deadline.expired():
                return attempt.failed(f"no answer within {within_s:g} s")
            return attempt.failed(str(error) or "connection timed out")
        except (WebhookInvalid, ResponseInvalid) as error:
            return attempt.failed(str(error))
        except (OSError, ValueError) as error:
            words = trouble_in_words(error, attempt.request.url)
            return attempt.failed(words or attempt.nothing_known)

    def close(self) -> None:
        self._pool.close()

    async def _send(self, attempt: _Attempt, deadline: asyncio.Timeout) -> Response:
        target = self._guard.target_of(attempt.request.url)
        headers = {**self._manners.headers, **self._manners.secret_headers(target)}
        data = attempt.request.encoded(target, headers)
        _check(deadline)
        kept = self._pool.take(target.origin)
        if kept is not None:
            try:
                return await self._ask(kept, target, data, attempt)
            except (OSError, ResponseInvalid):
                if attempt.reader.received or not self._manners.repeats:
                    raise
                # The server closed it while it waited, and will know the id if it did not.
        connection = await self._connect(target, deadline)
        return await self._ask(connection, target, data, attempt)

    async def _ask(
        self, connection: Connection, target: Target, data: bytes, attempt: _Attempt
    ) -> Response:
        reader = attempt.reader
        attempt.may_have_left = True
        is_kept = False
        try:
            await connection.ask(data, reader)
            is_kept = reader.is_reusable
        finally:
            if is_kept:
                self._pool.keep(target.origin, connection)
            else:
                connection.abort()
        return reader.response()

    async def _connect(self, target: Target, deadline: asyncio.Timeout) -> Connection:
        try:
            addresses = await self._network.resolve(target.host, target.port)
        except UnicodeError:
            # Of a label that is empty or too long.
            raise socket.gaierror(socket.EAI_NONAME, "is no name") from None
        self._guard.check(target, addresses)
        trouble: Exception = OSError(f"{target.host} has no address")
        for number, address in enumerate(addresses):
            # An address that does not answer leaves time for those after it.
            share_s = _check(deadline) / (len(addresses) - number)
            try:
                async with asyncio.timeout(min(self._manners.connect_s, share_s)):
                    return await self._network.connect(address, target)
            except TimeoutError:
                trouble = OSError(f"{address}: connection timed out")
            except OSError as error:
                trouble = error
        raise trouble


def _check(deadline: asyncio.Timeout) -> float:
    """How much time is left; TimeoutError if none is. What is over must not be sent any more."""
    left_s = (deadline.when() or 0.0) - asyncio.get_running_loop().time()
    if left_s <= 0:
        raise TimeoutError("its time was over before it was sent")
    return left_s


class _Attempt:
    def __init__(self, request: HttpRequest, reader: ResponseReader) -> None:
        self.request = request
        self.reader = reader
        #: From here on the server may have it.
        self.may_have_left = False

    @property
    def nothing_known(self) -> str:
        return "it is not known whether it arrived" if self.may_have_left else "it was not sent"

    def failed(self, reason: str) -> Exchange:
        return NoResponse(reason) if self.may_have_left else NotSent(reason)
