"""The same client for callers that are threads: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait

from datp_tasks.outbound.address_guard import AddressGuard
from datp_tasks.outbound.http_client import HttpClient, Manners, Network
from datp_tasks.outbound.messages import Exchange, HttpRequest, NoResponse, NotSent
from datp_tasks.outbound.resolver import SystemResolver

#: Others wait for their turn, within their time.
UNDER_WAY_MAX = 64
STOP_S = 5.0
CLOSE_S = 0.01


class ThreadedHttpClient:
    """Threads may share it. It starts with its first request, also after it was closed."""

    def __init__(
        self,
        guard: AddressGuard,
        manners: Manners,
        *,
        before_send: Callable[[], None] | None = None,
    ) -> None:
        self._guard = guard
        self._manners = manners
        self._before_send = before_send
        self._lock = threading.Lock()
        self._running: _Running | None = None

    def start(self, request: HttpRequest, give_up_s: float) -> Future[Exchange]:
        """Send a request; all of it is over at that moment of the monotonic clock."""
        with self._lock:
            if self._running is None:
                self._running = _Running(self._guard, self._manners)
            work = self._running.exchange(request, give_up_s, self._before_send)
            return asyncio.run_coroutine_threadsafe(work, self._running.loop)

    def close(self) -> None:
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.stop()


class _Running:
    def __init__(self, guard: AddressGuard, manners: Manners) -> None:
        self._names = SystemResolver(UNDER_WAY_MAX)
        self._client = HttpClient(guard, manners, Network(resolve=self._names))
        self._places = asyncio.Semaphore(UNDER_WAY_MAX)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="datp-outbound", daemon=True)
        self._thread.start()

    async def exchange(
        self, request: HttpRequest, give_up_s: float, before_send: Callable[[], None] | None
    ) -> Exchange:
        late = NotSent("its time was over before it was sent")
        try:
            async with asyncio.timeout(give_up_s - time.monotonic()):
                await self._places.acquire()
        except TimeoutError:
            return late
        except asyncio.CancelledError:
            return NotSent("the client was closed")
        try:
            if time.monotonic() >= give_up_s:
                return late
            if before_send is not None:
                before_send()
            return await self._client.send(request, give_up_s - time.monotonic())
        except asyncio.CancelledError:
            return NoResponse("the client was closed")
        finally:
            self._places.release()

    def stop(self) -> None:
        """What is under way ends without a response."""
        ended = asyncio.run_coroutine_threadsafe(self._end(), self.loop)
        wait([ended], timeout=STOP_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(STOP_S)
        self._names.close()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._client.close()
        # The loop closes connections in one of its next rounds.
        await asyncio.sleep(CLOSE_S)
