"""Messages that a worker has: known to it alone, and handed back when it does not run them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from celery import Celery
from kombu.entity import Queue
from kombu.messaging import Consumer

from datp_tasks.bells.broker import CelerySend, backlog, make_celery
from datp_tasks.bells.broker_guard import OTHER_FIRST_EVERY
from datp_tasks.live.live_types import PRIORITIES
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.settings import Settings
from datp_tasks.testing import Kit

PAIR = ("t00-" + "0" * 32, 1)


@dataclass
class Taker:
    """The part of a worker that takes messages, one at a time."""

    app: Celery
    queue: str
    taken: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connection = self.app.connection_for_read()
        channel = self.connection.channel()
        channel.basic_qos(0, 1, False)
        on_message = self.taken.append
        make_queue, make_consumer = cast(Any, Queue), cast(Any, Consumer)
        queues = [make_queue(self.queue, routing_key=self.queue)]
        make_consumer(channel, queues, on_message=on_message, accept=["json"]).consume()

    def take(self) -> Any:
        before = len(self.taken)
        while len(self.taken) == before:
            self.connection.drain_events(timeout=5)
        return self.taken[-1]


@pytest.fixture
def queue(datp: Kit) -> Iterator[str]:
    """Queues have no prefix, so this one has a name of its own."""
    name = f"held-{secrets.token_hex(4)}"
    yield name
    names = list(datp.connections.redis.scan_iter(f"*{name}*"))
    if names:
        datp.connections.redis.delete(*names)


@pytest.fixture
def app(datp: Kit) -> Iterator[Celery]:
    app = make_celery(datp.settings)
    yield app
    app.close()


def ring(app: Celery, queue: str, priority: str = "in") -> None:
    CelerySend(app)("test/step", [PAIR], group=queue, priority=priority)


def test_a_message_that_is_taken_and_acked_leaves_nothing_in_redis(
    app: Celery, queue: str, datp: Kit
) -> None:
    ring(app, queue)
    taker = Taker(app, queue)
    message = taker.take()
    redis = datp.connections.redis
    assert message.payload[0][0] == [list(PAIR)]
    assert redis.exists("unacked", "unacked_index") == 0
    message.ack()
    taker.connection.close()
    assert backlog(app, queue) == 0


def test_a_worker_that_closes_hands_back_what_it_has_not_run(app: Celery, queue: str) -> None:
    ring(app, queue)
    taker = Taker(app, queue)
    taker.take()
    taker.connection.close()
    assert backlog(app, queue) == 1
    again = Taker(app, queue)
    message = again.take()
    assert message.payload[0][0] == [list(PAIR)]
    message.ack()
    again.connection.close()
    assert backlog(app, queue) == 0


def test_the_message_of_a_pool_process_that_died_goes_back_once(app: Celery, queue: str) -> None:
    ring(app, queue)
    taker = Taker(app, queue)
    message = taker.take()
    message.reject(requeue=True)
    assert backlog(app, queue) == 1
    taker.connection.close()
    assert backlog(app, queue) == 1


def test_one_that_has_a_message_takes_no_other(app: Celery, queue: str) -> None:
    ring(app, queue)
    ring(app, queue)
    taker = Taker(app, queue)
    first = taker.take()
    with pytest.raises(TimeoutError):
        taker.connection.drain_events(timeout=0.3)
    first.ack()
    assert taker.take() is not first
    taker.connection.close()


@pytest.mark.parametrize(
    ("endless", "waits"),
    [
        (("in",), "out-later"),
        (("in",), "in-later"),
        (("out", "in-later"), "in"),
        (("out", "in-later"), "out-later"),
        (("admin", "in"), "out"),
    ],
)
def test_work_that_never_ends_keeps_no_priority_waiting_for_ever(
    app: Celery, queue: str, endless: tuple[str, ...], waits: str
) -> None:
    """A doorbell that is rung all the time always has a message in the queue."""
    names = {level: name for name, level in PRIORITIES.items()}
    for priority in (*endless, waits):
        ring(app, queue, priority)
    taker = Taker(app, queue)
    taken: list[str] = []
    for _ in range(len(PRIORITIES) * OTHER_FIRST_EVERY):
        message = taker.take()
        taken.append(names[message.properties["priority"]])
        ring(app, queue, taken[-1])
        message.ack()
        if taken[-1] == waits:
            break
    taker.connection.close()
    # It has its turn, and the most urgent work has most of the turns.
    assert taken[-1] == waits
    assert taken.count(endless[0]) >= len(taken) // 2


def test_a_broker_that_is_gone_makes_no_dump_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    server = RedisServer(tmp_path / "broker")
    server.start()
    app = make_celery(Settings(redis_url=server.url, policy_file="single-person"))
    try:
        ring(app, "master")
        taker = Taker(app, "master")
        message = taker.take()
        channel = message.channel
        server.destroy()
        channel.qos.restore_unacked_once()
        assert "1 messages could not be handed back" in caplog.text
        assert "RESTORE" not in capfd.readouterr().err.upper()
        # The pool process that runs it comes back to a worker that has another connection by now.
        message.ack()
        channel.qos.reject(message.delivery_tag, requeue=True)
    finally:
        server.destroy()
        app.close()
