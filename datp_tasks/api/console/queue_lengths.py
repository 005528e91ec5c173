"""How many messages wait for a node group, asked for at most every few seconds."""

from __future__ import annotations

import threading
import time

from datp_tasks.bells.broker import backlog, make_celery
from datp_tasks.settings import Settings

KEEP_S = 2.0


class QueueLengths:
    """Threads share it; asking opens a connection to the broker, so answers are kept."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, int]] = {}

    def __call__(self, group: str) -> int:
        with self._lock:
            until_s, length = self._known.get(group, (0.0, 0))
            if until_s < time.monotonic():
                celery = make_celery(self._settings)
                try:
                    length = backlog(celery, group)
                finally:
                    celery.close()
                self._known[group] = (time.monotonic() + KEEP_S, length)
            return length
