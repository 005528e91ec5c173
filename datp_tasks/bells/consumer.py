"""What a worker's main process does with a message before anything else.

Celery expects messages to be made by Celery: one that only looks like a message ends the worker,
goes back to its queue and ends the next one. A bell can be lost without harm, so whatever is not
shaped like a bell of ours is dropped with a line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer

log = logging.getLogger("datp.bells")


class BellConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer, with a door."""

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        handle = super().create_task_handler(*args, **kwargs)

        def on_message(message: Any) -> None:
            try:
                mistake = mistake_in(message)
                if not mistake:
                    handle(message)
            except self.connection_errors:
                raise
            except Exception as error:
                mistake = f"{type(error).__name__}: {error}"
            if mistake:
                log.error("a message that is no bell was dropped: %.300s", mistake)
                message.reject_log_error(log, self.connection_errors)

        return on_message


def mistake_in(message: Any) -> str:
    """Why this cannot be a message of ours; empty if it can."""
    headers = message.headers
    if not isinstance(headers.get("task"), str) or not isinstance(headers.get("id"), str):
        return "it names no task"
    # A forged time limit would kill workers; nothing of ours is delayed or retried by Celery.
    if any(headers.get("timelimit") or ()) or any(headers.get(name) for name in ("eta", "retries")):
        return "it asks for what bells never ask for"
    match message.payload:
        case [list(), dict(), dict() as embedded] if not any(embedded.values()):
            return ""
    return "its body is not that of a task"
