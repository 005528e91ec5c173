"""The door of an API process: what is decided about a connection before a key is looked at.

How many connections there are and whose they are, how long a head may take and how large it may
be. One sweep a second looks after all connections, so that none needs a timer of its own.
"""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from datp_tasks.api.problems import RETRY_AFTER_S, Problem
from datp_tasks.api.request_ids import new_request_id
from datp_tasks.api.shares import Shares
from datp_tasks.settings import Settings

#: Of every answer.
HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
#: The longest URL that is of use here has a cursor of 3,000 characters in it.
URL_BYTES_MAX = 8_192
HEAD_BYTES_MAX = 32_768
HEADERS_MAX = 100
#: From the first byte (or the connection) to the end of the headers.
HEAD_S = 10.0
#: After an answer that did not need the body: so long the rest of it may come.
REST_S = 5.0
#: For a client that does not read its answer, or does not let the connection be closed.
STUCK_S = 30.0
#: Requests that were sent without waiting for the answer before.
PIPELINED_MAX = 32
SWEEP_S = 1.0
#: Open files that are no connections of clients.
OTHER_FILES = 256


class Door:
    """The connections of one process."""

    def __init__(self, settings: Settings) -> None:
        files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files_max == resource.RLIM_INFINITY:
            files_max = settings.api_connections_max + OTHER_FILES
        connections_max = max(4, min(settings.api_connections_max, files_max - OTHER_FILES))
        self.places = Shares(connections_max, what="connections")
        self.inside: set[DoorProtocol] = set()
        self._sweeping = False

    def enter(self, protocol: DoorProtocol, address: str) -> bool:
        if not self.places.take(address):
            return False
        self.inside.add(protocol)
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        return True

    def leave(self, protocol: DoorProtocol, address: str) -> None:
        if protocol in self.inside:
            self.inside.discard(protocol)
            self.places.give_back(address)

    def _sweep(self) -> None:
        now_s = time.monotonic()
        for each in list(self.inside):
            each.look_after(now_s)
        self._sweeping = bool(self.inside)
        if self._sweeping:
            asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)


class DoorProtocol(HttpToolsProtocol):
    """uvicorn's, with limits on what comes before the application."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        app = getattr(self.app, "app", self.app)
        self._door: Door = app.state.door
        self._address = ""
        self._in_body = False
        self._heard = False
        self._header_count = 0
        self._head_bytes = 0
        #: What came after the head since the last bytes of a body: chunk extensions, trailers.
        self._idle_bytes = 0
        self._refused: Problem | None = None
        #: Since when it sends a head, the rest of a body that is not needed, or reads nothing.
        self._head_since_s: float | None = None
        self._rest_since_s: float | None = None
        self._stuck_since_s: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._head_since_s = time.monotonic()
        if not self._door.enter(self, self._address):
            self._answer(_busy(self._address))

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self, self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._refused is not None or self.transport.is_closing():
            return
        self._heard = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            refused = Problem(400, "request-invalid", "This is not an HTTP request.")
            self._answer(self._refused or refused)
            return
        except httptools.HttpParserUpgrade:
            refused = Problem(400, "request-invalid", "There is no other protocol here.")
            self._answer(refused)
            return
        if self._head_since_s is not None:
            # A head that is not complete: what came of it is counted as it comes.
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX + URL_BYTES_MAX:
                self._answer(_head_too_large())
        elif self._in_body and not self._heard:
            self._idle_bytes += len(data)
            if self._idle_bytes > HEAD_BYTES_MAX:
                # Not answered: the application may be in the middle of its answer.
                self.transport.abort()
        elif not self._heard:
            # Empty lines before a request.
            self._head_since_s = time.monotonic()
        if len(self.pipeline) > PIPELINED_MAX:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # Whom the bytes come from, whatever headers of a proxy say of it.
        self.scope["datp_peer"] = self._address  # type: ignore[typeddict-unknown-key]
        self._heard = True
        self._head_bytes = self._header_count = 0
        self._rest_since_s = None
        if self._head_since_s is None:
            self._head_since_s = time.monotonic()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > HEADERS_MAX:
            self._stop(_head_too_large())
        # A trailer is no header: the application has begun with those that were there.
        if not self._in_body:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._heard = True
        self._idle_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if len(self.url) > URL_BYTES_MAX:
            self._stop(Problem(414, "too-large", f"A URL has at most {URL_BYTES_MAX} bytes."))
        if sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES_MAX:
            self._stop(_head_too_large())
        self._head_since_s = None
        self._in_body = True
        self._heard = True
        self._idle_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._heard = True
        self._in_body = False
        self._rest_since_s = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body:
            self._rest_since_s = time.monotonic()

    def look_after(self, now_s: float) -> None:
        """Once a second: end what takes too long."""
        if self.transport.is_closing() or self.flow.write_paused:
            self._stuck_since_s = self._stuck_since_s or now_s
            if now_s - self._stuck_since_s > STUCK_S:
                self.transport.abort()
            return
        self._stuck_since_s = None
        if self._head_since_s is not None and now_s - self._head_since_s > HEAD_S:
            detail = f"The head of the request did not arrive within {HEAD_S:g} s."
            self._answer(Problem(408, "too-slow", detail))
        elif self._rest_since_s is not None and now_s - self._rest_since_s > REST_S:
            self.transport.close()

    def _stop(self, problem: Problem) -> None:
        """Within the parser, which ends when a call of it fails."""
        self._refused = problem
        raise problem

    def _answer(self, problem: Problem) -> None:
        """Without the application, and for the last time on this connection."""
        self._refused = problem
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            # The answer before is on its way; two would be taken for one.
            self.transport.abort()
            return
        request_id = new_request_id()
        made = problem.response(request_id)
        ours = [(b"request-id", request_id.encode()), (b"connection", b"close")]
        lines = [*made.raw_headers, *HEADERS, *ours]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
        self.transport.write(
            b"".join((STATUS_LINE[problem.status_code], head, b"\r\n", bytes(made.body)))
        )
        self.transport.close()


def _head_too_large() -> Problem:
    return Problem(
        431,
        "too-large",
        f"The headers have at most {HEAD_BYTES_MAX} bytes, in {HEADERS_MAX} lines.",
    )


def _busy(address: str) -> Problem:
    return Problem(
        503,
        "busy",
        f"Too many connections are open, {address} has its share of them. Ask again later.",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )
