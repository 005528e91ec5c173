"""Messages that we put into Celery's queue ourselves: as Celery makes them, and in one trip."""

from __future__ import annotations

import json
import secrets
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from celery import Celery
from celery.signals import before_task_publish
from redis.exceptions import ConnectionError as RedisConnectionError

from datp_tasks import Pipeline
from datp_tasks.bells.broker import CelerySend, backlog, make_celery
from datp_tasks.bells.posting import Posting
from datp_tasks.live.doorbells import Doorbells, Pair
from datp_tasks.live.live_types import FIRST_SEQUENCE, PRIORITIES, Bell
from datp_tasks.runtime import jobs
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings
from datp_tasks.testing import Kit

PAIRS: list[Pair] = [("t00-" + "0" * 32, 1), ("t01-" + "f" * 32, 7)]

STEP = "util/fixed-reply"
#: In every message another one.
ONCE = ("id", "root_id", "correlation_id", "delivery_tag")


@pytest.fixture
def queue(datp: Kit) -> Iterator[str]:
    """Queues have no prefix, so this one has a name of its own."""
    name = f"post-{secrets.token_hex(4)}"
    yield name
    for key in datp.connections.redis.scan_iter(f"*{name}*"):
        datp.connections.redis.delete(key)


@pytest.fixture
def app(datp: Kit) -> Iterator[Celery]:
    app = make_celery(datp.settings)
    yield app
    app.close()


def read(text: str | bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(text)
    for part in ("headers", "properties"):
        for name in ONCE:
            if name in message[part]:
                assert len(message[part].pop(name)) == 36
    message["body"] = json.loads(b64decode(message["body"]))
    return message


@pytest.mark.parametrize("priority", PRIORITIES)
@pytest.mark.parametrize("answers", ["", "master|in|t/step|p/0"])
def test_a_message_is_the_one_that_celery_would_send(
    datp: Kit, app: Celery, queue: str, priority: str, answers: str
) -> None:
    where = {"group": queue, "priority": priority, "answers": answers}
    CelerySend(app)("t/step", PAIRS, **where)
    posted = Posting(app, datp.settings).message("t/step", PAIRS, **where)
    [theirs] = datp.connections.redis.lrange(posted.queue, 0, -1)
    assert read(posted.text) == read(theirs)
    ids = [json.loads(text)["headers"]["id"] for text in (posted.text, theirs)]
    assert ids[0] != ids[1]


def test_only_where_the_queues_are_in_our_redis_and_nothing_changes_messages(
    datp: Kit, app: Celery
) -> None:
    def usable(settings: Settings = datp.settings, **conf: Any) -> bool:
        before = {name: app.conf[name] for name in conf}
        app.conf.update(conf)
        try:
            return Posting(app, settings).is_usable
        finally:
            app.conf.update(before)

    assert usable()
    for url in ("redis://127.0.0.1:1/0", "amqp://127.0.0.1"):
        elsewhere = replace(datp.settings, broker_url=url)
        assert not usable(elsewhere, broker_url=url)
    url = "redis://127.0.0.1:1"
    clustered = replace(datp.settings, redis_cluster="on", redis_url=url, broker_url=url)
    assert not usable(clustered, broker_url=url)
    assert not usable(task_send_sent_event=True)
    assert not usable(task_compression="gzip")
    assert not usable(broker_write_url="redis://127.0.0.1:1/0")
    options = app.conf.broker_transport_options
    assert not usable(broker_transport_options=options | {"global_keyprefix": "a:"})
    assert not usable(broker_transport_options=options | {"priority_steps": [0, 9]})


def test_a_receiver_of_celerys_signals_gets_them(datp: Kit, app: Celery) -> None:
    posting = Posting(app, datp.settings)

    def trace(**_: Any) -> None:
        """As an instrumentation adds its headers to every message."""

    before_task_publish.connect(trace)
    try:
        assert not posting.is_usable
    finally:
        before_task_publish.disconnect(trace)
    assert posting.is_usable


@pytest.fixture
def house(datp: Kit, queue: str, app: Celery) -> Iterator[Container]:
    """Connections as a client has them, with a place of which the cost is known."""
    datp.use(Pipeline("posted", group=queue).step(STEP, params={"output": {}}).build())
    container = Container.open(datp.settings, clock=datp.clock, celery=app)
    container.bells.costs.measured("posted/0", transactions=1, work_s=0.001)
    yield container
    container.close()


def queued(house: Container, queue: str) -> list[list[Pair]]:
    """The pairs of each message, the first one first."""
    key = f"{queue}\x06\x166"
    bodies = [read(text)["body"] for text in reversed(house.redis.lrange(key, 0, -1))]
    return [[(tx, number) for tx, number in args[0]] for args, _, _ in bodies]


def test_a_lone_transaction_is_created_and_rung_for_in_one_round_trip(
    datp: Kit, house: Container, queue: str
) -> None:
    client = make_client(house)
    first = client.submit("posted", {"n": 0})
    house.redis.delete(*house.redis.scan_iter(f"{datp.settings.key_prefix}:{{bells}}:*"))
    house.redis.delete(f"{queue}\x06\x166")
    before = house.live.round_trips
    tx_id = client.submit("posted", {"n": 1}).tx_id
    assert house.live.round_trips == before + 1
    assert queued(house, queue) == [[(tx_id, FIRST_SEQUENCE)]]
    assert house.live.fields_many([tx_id])[0]["status"] == "queued"
    # The next one goes with that message, and another list than the queue has it.
    client.submit("posted", {"n": 2})
    assert len(queued(house, queue)) == 1
    assert house.bells.ringer.waiting(queue) == 1
    assert first.tx_id != tx_id
    client.close()


def test_what_fills_vectors_is_put_into_the_queue_together(house: Container, queue: str) -> None:
    size = house.bells.costs.vector_size("posted/0")
    bells = [
        Bell(f"t07-{number:032x}", 1, queue, STEP, "posted/0", "in", owner=f"o{number}")
        for number in range(3 * size)
    ]
    assert house.bells.ringer.ring_along(bells) is None
    before = house.live.round_trips
    house.bells.ringer.ring(bells)
    assert house.live.round_trips == before + 1
    assert queued(house, queue) == [
        [(bell.tx_id, 1) for bell in bells[start : start + size]]
        for start in range(0, 3 * size, size)
    ]


def test_the_queue_of_a_group_without_workers_stays_short(
    datp: Kit, house: Container, queue: str, app: Celery
) -> None:
    """The reconciler rings again for all of them, but their messages are still there."""
    client = make_client(house)
    count = 10
    for number in range(count):
        client.submit("posted", {"n": number})
    messages = []
    for _ in range(32):
        datp.clock.advance(seconds=datp.settings.ring_again_after_ms / 1_000)
        # So much later a message that was not answered holds up no other one.
        for key in house.redis.scan_iter(f"{datp.settings.key_prefix}:{{bells}}:ringN:*"):
            house.redis.delete(key)
        jobs.run("reconciler", house, partial(backlog, app))
        messages.append(backlog(app, queue))
    # As many as there are transactions; then, while their wait doubles, at most one for each.
    assert count <= messages[15] <= 2 * count
    assert messages[31] - messages[15] <= count
    client.close()


def test_an_unknown_place_and_a_lone_bell_are_not_rung_along(house: Container, queue: str) -> None:
    known = Bell("t07-" + "0" * 32, 1, queue, "util/fixed-reply", "posted/0", "in")
    assert house.bells.ringer.ring_along([known]) is not None
    assert house.bells.ringer.ring_along([replace(known, alone=True)]) is None
    assert house.bells.ringer.ring_along([replace(known, place="other/0")]) is None
    assert house.bells.ringer.ring_along([known, replace(known, place="other/0")]) is None
    assert house.bells.ringer.ring_along([]) is None


def test_a_bell_that_is_rung_along_finds_out_whether_workers_are_busy(
    house: Container, queue: str
) -> None:
    ringer = house.bells.ringer
    for sequence, is_busy in ((1, False), (2, True)):
        bell = Bell("t07-" + "0" * 32, sequence, queue, "util/fixed-reply", "posted/0", "in")
        call, rung = ringer.ring_along([bell]) or pytest.fail("it needs a message of its own")
        rung(house.live.run([call])[0])
        assert ringer.found_busy == is_busy


def test_what_was_accepted_is_answered_also_if_it_cannot_be_rung_for(
    datp: Kit, house: Container, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis is lost between the bell that found no room and the line of its owner."""
    client = make_client(house)
    size = house.bells.costs.vector_size("posted/0")
    for number in range(size + 1):
        client.submit("posted", {"n": number})

    def lost(*_: Any, **__: Any) -> None:
        raise RedisConnectionError("lost")

    for name in ("ring", "put"):
        monkeypatch.setattr(Doorbells, name, lost)
    tx_id = client.submit("posted", {"n": -1}).tx_id
    assert house.live.fields_many([tx_id])[0]["status"] == "queued"
    client.close()
