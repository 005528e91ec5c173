"""RabbitMQ as the broker: the same bells through another tower."""

from __future__ import annotations

import os

import pytest

from datp_tasks import Pipeline
from datp_tasks.bells.broker import backlog
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house_fixtures import NewHouse

URL = os.environ.get("DATP_TEST_RABBITMQ_URL", "")

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.rabbitmq,
    pytest.mark.skipif(not URL, reason="DATP_TEST_RABBITMQ_URL names no RabbitMQ server"),
]


def test_a_worker_takes_bells_from_rabbitmq_the_urgent_ones_first(new_house: NewHouse) -> None:
    # A queue of its own: the server may be somebody's, and keeps what others left.
    group = f"datp-test-{os.getpid()}"
    house = new_house(broker_url=URL, maintenance_group=group)
    house.use(Pipeline("rabbit", group=group).step("acc/mark", params={"word": "hopped"}))
    waiting = [house.submit_silently("rabbit") for _ in range(3)]
    for tx_id, priority in zip(waiting, ("in", "out", "admin"), strict=True):
        house.send("acc/mark", [(tx_id, 1)], group=group, priority=priority)
    eventually(lambda: backlog(house.celery, group) == 3, what="bells in the queue")
    worker = house.worker(group)
    house.beat()
    house.wait_ready(worker)
    for tx_id in waiting:
        assert house.client.wait(tx_id, timeout_s=20).status is Status.SUCCESS
    assert [each["tx"] for each in house.notes("mark")] == waiting[::-1]
    # Beat's messages come through as well: a lost bell is rung again.
    unheard = house.submit_silently("rabbit")
    assert house.client.wait(unheard, timeout_s=20).status is Status.SUCCESS
    with house.celery.connection_for_write() as connection:
        connection.default_channel.queue_delete(group)
