"""Messages that start jobs, never more of them in a queue than a worker needs.

A job that is late runs once, however many messages ask for it. So while no worker takes them, beat
and workers that pass a job on send no more than a few rounds; on RabbitMQ, which cannot count one
priority alone, a message that was not taken in time is dropped by the server.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from celery.beat import PersistentScheduler, ScheduleEntry

from datp_tasks.live.live_types import PRIORITIES

log = logging.getLogger("datp.beat")

#: A few rounds of all jobs: a worker that was held up for some seconds misses none.
WAITING_MAX = 60
#: For RabbitMQ; the Redis transport knows no such time, and is counted instead.
KEPT_S = 60
PRIORITY = PRIORITIES["admin"]


class JobScheduler(PersistentScheduler):  # type: ignore[misc]
    """Celery's own scheduler, which asks before it sends."""

    def __init__(self, *args: Any, **options: Any) -> None:
        #: Queues of which was said that no worker empties them.
        self._full: set[str] = set()
        super().__init__(*args, **options)

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        queue = str(entry.options.get("queue") or self.app.conf.task_default_queue)
        if not is_full(self.app, queue):
            self._full.discard(queue)
            super().apply_entry(entry, producer=producer)
        elif queue not in self._full:
            self._full.add(queue)
            log.warning(
                "%d messages wait in the queue %s: no worker takes them, so beat sends no more "
                "until one does (celery -A datp_tasks worker -Q %s)",
                *(WAITING_MAX, queue, queue),
            )


def pass_on(app: Celery, task: str, queue: str) -> bool:
    """Send a job to another queue, told that it was passed on; False if it is full."""
    if is_full(app, queue):
        return False
    app.send_task(task, args=(True,), queue=queue, priority=PRIORITY, expiration=KEPT_S)
    return True


def is_full(app: Celery, queue: str) -> bool:
    """Whether so many messages for jobs wait that one more would be for nothing."""
    if app.conf.broker_url.startswith("amqp"):
        return False
    try:
        with app.producer_pool.acquire(block=True) as producer:
            return _waiting(producer.channel, queue) >= WAITING_MAX
    except Exception as error:
        # Sending meets the same trouble, and knows what to do about it.
        log.debug("how many messages wait in %s is not known: %s", queue, error)
        return False


def _waiting(channel: Any, queue: str) -> int:
    """Messages of the jobs' priority; bells have another, and may be many."""
    if not hasattr(channel, "conn_or_acquire"):
        return 0
    with channel.conn_or_acquire() as client:
        return int(client.llen(channel._q_for_pri(queue, PRIORITY)))
