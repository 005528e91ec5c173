"""HTTP: each exchange has one deadline for everything, and ends in one of three ways.

What matters is whether a request can have arrived. So the moment before its first byte leaves is
noted: everything that goes wrong before it is `NotSent`, everything after it `NoAnswer`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import httpx

from datp_tasks.failpoints import reach
from datp_tasks.ledger.http_words import Answer, HttpRequest, NoAnswer, NotSent, Outcome
from datp_tasks.settings import Settings

BODY_BYTES_MAX = 1_048_576
CLOSE_S = 5.0
#: Nothing has left before this event, as httpcore names it.
LEAVING = "send_request_headers.started"

T = TypeVar("T")


class Wire:
    """The HTTP client of one process, on an event loop of its own. Threads may share it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: httpx.AsyncClient | None = None

    def warm_up(self) -> None:
        """Make the client before time is counted: reading certificates is slow."""
        if self._client is None:
            self._run(self._make_client()).result()

    def start(self, request: HttpRequest, give_up_s: float) -> Future[Outcome]:
        """Send a request; all of it is over at that moment of the monotonic clock."""
        return self._run(self._exchange(request, give_up_s))

    def close(self) -> None:
        with self._lock:
            loop, client, thread = self._loop, self._client, self._thread
            self._loop = self._client = self._thread = None
        if loop is None or thread is None:
            return
        if client is not None:
            asyncio.run_coroutine_threadsafe(client.aclose(), loop).result(CLOSE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_S)
        if not thread.is_alive():
            loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="datp-ledger-http", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _exchange(self, request: HttpRequest, give_up_s: float) -> Outcome:
        left_s = give_up_s - time.monotonic()
        if left_s <= 0:
            return NotSent("its time was over before it was sent")
        reach("ledger.before_send")
        leaving = asyncio.Event()
        try:
            async with asyncio.timeout(left_s):
                return await self._send(request, leaving)
        except TimeoutError:
            reason = f"no answer within {left_s:.1f} s"
        except Exception as error:
            # Whatever a library may raise: what matters is whether it can have arrived.
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        return NoAnswer(reason) if leaving.is_set() else NotSent(reason)

    async def _send(self, request: HttpRequest, leaving: asyncio.Event) -> Outcome:
        async def trace(event: str, _: Any) -> None:
            if event.endswith(LEAVING):
                leaving.set()

        client = await self._make_client()
        built = client.build_request(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=request.content or None,
            extensions={"trace": trace},
        )
        response = await client.send(built, stream=True)
        try:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > BODY_BYTES_MAX:
                    return NoAnswer(f"the answer is longer than {BODY_BYTES_MAX} bytes")
        finally:
            await response.aclose()
        return Answer(response.status_code, bytes(body))

    async def _make_client(self) -> httpx.AsyncClient:
        """The client, on the event loop, where nobody else makes it at the same time."""
        if self._client is not None:
            return self._client
        headers = {"User-Agent": "datp-tasks", "Accept-Encoding": "identity"}
        if self._settings.ledger_authorization:
            headers["Authorization"] = self._settings.ledger_authorization
        connect_s = self._settings.ledger_connect_s
        self._client = httpx.AsyncClient(
            headers=headers,
            trust_env=False,
            follow_redirects=False,
            # The deadline of the exchange is ours; only connecting has a limit of its own.
            timeout=httpx.Timeout(None, connect=connect_s),
            limits=httpx.Limits(max_connections=200, max_keepalive_connections=100),
        )
        return self._client
