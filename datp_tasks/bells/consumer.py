"""What a worker's main process does with a message before anything else.

Celery expects messages to be made by Celery: one that only looks like a message ends the worker,
goes back to its queue and ends the next one. A bell can be lost without harm, so whatever is not
shaped like a bell of ours is dropped with a line in the log.

Celery also gives up too much when it closes: a bell that a pool process has, but has not confirmed
yet. Its result is then never read, and the pool process waits 30 s for that before it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.concurrency.asynpool import AsynPool
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

    def on_close(self) -> None:
        """At a warm shutdown, and when the connection is lost."""
        keep_written_jobs(getattr(self.pool, "_pool", None))
        super().on_close()


def keep_written_jobs(pool: Any) -> None:
    """Let Celery treat a job that is in the pipe of a live pool process as accepted by it.

    Celery's `flush` discards what is not accepted. For what is written that comes too late: the
    pool process runs it all the same, its acceptance and its result just have no reader any more.
    Kept, the result is read, the bell is acked, and a process that dies with it counts as lost.
    billiard's limit on that wait is left as it is: lowering it would leave the bell unacked, and
    billiard means it for recycled processes, whose parent may be held up by the broker.
    """
    if not isinstance(pool, AsynPool):
        return
    for job in list(pool._cache.values()):
        if not job._accepted and _is_written(pool, job) and job._write_to._is_alive():
            # What `ApplyResult._ack` notes; the rest follows when the acceptance is read.
            job._accepted, job._worker_pid = True, job._write_to.pid


def _is_written(pool: AsynPool, job: Any) -> bool:
    """Whole: what is half written is `flush`'s business, and what was put back is not there."""
    if job._write_to is None or job in pool.outbound_buffer:
        return False
    return job._writer() not in pool._active_writers


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
