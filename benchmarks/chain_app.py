"""The Celery app that our figures are compared with: a plain chain of tasks that do nothing.

It is set up the way that was fastest for Celery: early acks, no results and no result backend (a
third slower with one), no events, and Celery's own prefetch of 4 (1 and 100 were no faster). A
chain tells that it has ended by one RPUSH in its last task.
"""

from __future__ import annotations

import os

from celery import Celery
from redis import Redis

BROKER = "BENCH_CHAIN_BROKER_URL"
DONE = "bench:chains-done"
QUEUE = "bench-chain"

app = Celery("bench_chain", set_as_current=False)
app.conf.update(
    broker_url=os.environ.get(BROKER, ""),
    broker_connection_retry_on_startup=True,
    task_default_queue=QUEUE,
    result_backend=None,
    task_ignore_result=True,
    task_acks_late=False,
    worker_prefetch_multiplier=4,
)

_redis: Redis | None = None


@app.task(name="bench.pass")  # type: ignore[untyped-decorator]
def pass_on(data: dict[str, int]) -> dict[str, int]:
    return data


@app.task(name="bench.last")  # type: ignore[untyped-decorator]
def last(data: dict[str, int]) -> None:
    tell_done()


def tell_done() -> None:
    global _redis
    if _redis is None:
        # After the fork: each worker process has a connection of its own.
        _redis = Redis.from_url(os.environ[BROKER])
    _redis.rpush(DONE, "1")
