"""The message that says: there are webhooks to be sent. A hint, as all bells are."""

from __future__ import annotations

from celery import Celery

from datp_tasks.live.live_types import PRIORITIES

SEND_TASK = "datp.webhooks.send"


class SendBell:
    """Sends the task to the queue of those who send webhooks."""

    def __init__(self, app: Celery, queue: str) -> None:
        self._app = app
        self._queue = queue

    def __call__(self) -> None:
        self._app.send_task(SEND_TASK, queue=self._queue, priority=PRIORITIES["admin"])
