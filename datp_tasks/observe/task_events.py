"""Celery's task events for steps that no message brought: Flower shows them like any other task.

Whether events are wanted is known by a worker's main process, which Flower tells. It writes
that into one byte of shared memory; its pool processes look at the byte and pay nothing else
while it is 0. Events are collected and sent by a thread, a batch at a time, so that a slow broker
holds up no step; what cannot be sent is dropped, because events are only there to be looked at.
"""

from __future__ import annotations

import logging
import mmap
import threading
import uuid
from collections import deque
from contextlib import ExitStack
from typing import Any

from celery import Celery
from celery.events.event import Event

log = logging.getLogger("datp.events")

#: What waits to be sent; more than this is dropped.
WAITING_MAX = 10_000
SEND_EVERY_S = 0.2


class SharedFlag:
    """One byte that the main process writes and the processes of its pool read."""

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def set(self, on: bool) -> None:
        self._byte[0] = int(on)

    def __bool__(self) -> bool:
        return self._byte[0] != 0


def wants_task_events(consumer: Any) -> bool:
    """Whether a worker's main process has been told to send task events."""
    dispatcher = getattr(consumer, "event_dispatcher", None)
    if dispatcher is None or not dispatcher.enabled:
        return False
    return not dispatcher.groups or "task" in dispatcher.groups


class TaskEvents:
    """Sends the events of one process."""

    def __init__(self, app: Celery, wanted: SharedFlag, worker: str) -> None:
        self._app = app
        self._wanted = wanted
        self._worker = worker
        self._waiting: deque[dict[str, Any]] = deque(maxlen=WAITING_MAX)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        """Whether they are wanted."""
        return bool(self._wanted)

    def received(self, task: str, args: str, *, parent: str, retries: int) -> str:
        """A step is about to run; the id under which it is shown."""
        task_id = str(uuid.uuid4())
        self._add(
            "task-received",
            uuid=task_id,
            name=task,
            args=args,
            kwargs="{}",
            root_id=parent or task_id,
            parent_id=parent or None,
            retries=retries,
            eta=None,
            expires=None,
        )
        self._add("task-started", uuid=task_id)
        return task_id

    def succeeded(self, task_id: str, result: str, runtime_s: float) -> None:
        self._add("task-succeeded", uuid=task_id, result=result, runtime=runtime_s)

    def failed(self, task_id: str, why: str) -> None:
        self._add("task-failed", uuid=task_id, exception=why, traceback="")

    def close(self) -> None:
        """Send what waits."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)

    def _add(self, kind: str, **fields: Any) -> None:
        self._waiting.append(Event(kind, **fields))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="datp-events", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._send_until_stopped()
            except Exception as error:
                log.debug("events were dropped: %s", error)
                self._stopped.wait(1.0)

    def _send_until_stopped(self) -> None:
        with ExitStack() as stack:
            connection = stack.enter_context(self._app.connection_for_write())
            dispatcher = stack.enter_context(
                self._app.events.Dispatcher(
                    connection,
                    hostname=self._worker,
                    buffer_group=["task"],
                    buffer_limit=WAITING_MAX,
                    buffer_while_offline=False,
                )
            )
            stopped = False
            while not stopped:
                stopped = self._stopped.wait(SEND_EVERY_S)
                while self._waiting:
                    event = self._waiting.popleft()
                    dispatcher.send(event.pop("type"), **event)
                dispatcher.flush(errors=False)
