"""The event loop of this process, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from datp_tasks.errors import StepTimeout

T = TypeVar("T")


class EventLoop:
    """Started when the first async step comes along."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Let a coroutine run on the loop, from another thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(
                target=_run, args=(self._loop,), name="datp-event-loop", daemon=True
            ).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def result(self, coroutine: Coroutine[Any, Any, T], limit_s: float) -> T:
        """Wait for a coroutine; StepTimeout if it is over its limit and gives way."""

        async def limited() -> T:
            limit = asyncio.timeout(limit_s)
            try:
                async with limit:
                    return await coroutine
            except (TimeoutError, asyncio.CancelledError):
                if limit.expired():
                    raise StepTimeout from None
                raise RuntimeError("the step was cancelled") from None
            except SystemExit as error:
                # It would end the event loop.
                raise RuntimeError(f"the step called sys.exit({error.code})") from None

        return self.start(limited()).result()

    def stop(self) -> None:
        """No step will come any more."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
