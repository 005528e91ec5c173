"""Webhooks with real workers and beat: told at once, signed, and not lost with a worker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest
from standardwebhooks import Webhook

from datp_tasks import Pipeline
from tests.support.eventually import eventually
from tests.support.house import House
from tests.support.house_fixtures import NewHouse
from tests.support.receiver import Receiver, hangs, receiving

pytestmark = pytest.mark.acceptance

REPORT = {"report": {"stage": "half"}}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def office(new_house: NewHouse) -> House:
    house = new_house(
        webhook_private_hosts=("127.0.0.1",),
        webhook_timeout_s=1.0,
        webhook_hold_s=1.5,
        webhook_overdue_s=1.0,
        webhook_sender_period_s=0.5,
        webhook_delay_first_s=0.2,
        timeout_handler_period_s=0.2,
    )
    worker = house.worker(name="first")
    house.beat()
    house.use(
        Pipeline("report").step("util/progress-report", params=REPORT).step("acc/mark"),
        Pipeline("mark").step("acc/mark"),
        Pipeline("nobody", group="nobody-serves-it").step("acc/mark"),
    )
    house.wait_ready(worker)
    return house


def test_progress_and_the_end_are_told_at_once_and_signed(
    office: House, receiver: Receiver
) -> None:
    for _ in range(2):
        # The first one warms up the worker.
        receiver.got.clear()
        tx_id = office.submit("report", webhook=receiver.url(), progress_reports=True)
        eventually(lambda: len(receiver.got) >= 2, what="both webhooks")
    told = {got.data["sequence"]: got for got in receiver.got}
    assert sorted(told) == [1, 2]
    assert (told[1].data["progress"], told[2].data["status"]) == ({"stage": "half"}, "success")
    assert {got.data["txId"] for got in receiver.got} == {tx_id}
    (secret,) = office.connections.webhooks.store.signing_secrets({"local"})["local"]
    for got in receiver.got:
        assert Webhook(secret).verify(got.body, got.headers) == got.json
    (attempt,) = office.connections.webhooks.store.attempts(told[2].id)
    ended = datetime.fromisoformat(told[2].data["completedAt"])
    # It did not wait for beat; busy machines need some time all the same.
    assert (attempt.begun_at - ended).total_seconds() < 0.4


def test_one_that_expires_in_a_queue_is_told(office: House, receiver: Receiver) -> None:
    office.submit("nobody", webhook=receiver.url(), expires_in_s=1)
    eventually(lambda: len(receiver.got) == 1, what="the webhook")
    assert receiver.got[0].data["status"] == "expired"


def test_a_worker_that_is_killed_in_the_middle_of_an_attempt_loses_nothing(
    office: House, receiver: Receiver
) -> None:
    receiver.plan("/hang", hangs)
    office.submit("mark", webhook=receiver.url("/hang"))
    eventually(lambda: len(receiver.got) == 1, what="the first attempt")
    worker = office.processes[0]
    worker.kill()
    second = office.worker(name="second")
    office.wait_ready(second)
    eventually(lambda: len(receiver.got) == 2, what="another attempt")
    assert len({(got.id, got.body) for got in receiver.got}) == 1
    store = office.connections.webhooks.store
    eventually(lambda: store.find(receiver.got[0].id).state == "delivered", what="the end")
    last, first = store.attempts(receiver.got[0].id)
    assert (last.http_status, first.ended_at) == (200, None)
