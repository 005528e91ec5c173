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
    name = headers.get("task")
    if not isinstance(name, str) or not isinstance(headers.get("id"), str):
        return "it names no task"
    match message.payload:
        case [list(), dict(), dict() as embedded]:
            pass
        case _:
            return "its body is not that of a task"
    # A forged time limit would kill workers; nothing of ours is limited, delayed or chained.
    asked = [headers.get("eta"), headers.get("retries"), *(headers.get("timelimit") or ())]
    if name.startswith("datp.") and (any(asked) or any(embedded.values())):
        return "it asks for what bells never ask for"
    return ""
