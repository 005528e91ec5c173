"""The event loop of this process, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoop:
    """Started when the first async step comes along."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Let a coroutine run on the loop, from another thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(
                target=self._loop.run_forever, name="datp-event-loop", daemon=True
            )
            thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
