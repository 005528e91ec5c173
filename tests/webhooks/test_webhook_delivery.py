"""Deliveries through the whole engine, to receivers of every kind: nothing is lost."""

from __future__ import annotations

import base64
import threading
from typing import Any

import pytest
from standardwebhooks import Webhook

from datp_tasks.errors import WebhookBusy, WebhookUnknown
from datp_tasks.jobs.webhook_sender import Result
from datp_tasks.record.events import EventStore
from datp_tasks.record.webhooks import Delivery
from datp_tasks.runtime import jobs
from datp_tasks.runtime.container import Container
from datp_tasks.testing import Kit
from datp_tasks.webhooks import picker
from tests.support.eventually import eventually
from tests.support.receiver import (
    Behaviour,
    Receiver,
    answers,
    drips,
    floods,
    hangs,
    is_no_web_server,
    loses_its_answer,
    receiving,
    resets,
)
from tests.webhooks.conftest import NewKit


def run_job(kit: Kit) -> Result:
    result = kit.run_job("webhook_sender")
    assert isinstance(result, Result)
    return result


def only(kit: Kit, tx_id: str) -> Delivery:
    (found,) = kit.connections.webhooks.store.deliveries(tx_id=tx_id)
    return found


def test_the_end_of_a_transaction_is_told_once(kit: Kit, receiver: Receiver) -> None:
    summary = kit.run(
        "pay", {"amount": 5}, webhook=receiver.url(), external_id="e1", metadata={"for": "rent"}
    )
    assert run_job(kit) == Result(found=0, delivered=1, failed=0, dead=0)
    assert run_job(kit) == Result(found=0, delivered=0, failed=0, dead=0)
    (got,) = receiver.got
    assert got.json["type"] == "transaction.completed"
    assert summary.completed_at is not None
    assert got.data == {
        "txId": summary.tx_id,
        "externalId": "e1",
        "pipeline": "pay",
        "status": "success",
        "sequence": 1,
        "output": {"paid": 5},
        "progress": None,
        "note": None,
        "metadata": {"for": "rent"},
        "createdAt": got.data["createdAt"],
        "completedAt": got.json["timestamp"],
    }
    assert got.headers["content-type"] == "application/json"
    delivery = only(kit, summary.tx_id)
    assert (delivery.id, delivery.state, delivery.attempts) == (got.id, "delivered", 1)
    (attempt,) = kit.connections.webhooks.store.attempts(got.id)
    assert (attempt.attempt, attempt.http_status, attempt.error) == (1, 200, None)
    assert kit.connections.webhooks.schedule.size() == 0


def test_numbers_arrive_with_every_digit_that_they_have(kit: Kit, receiver: Receiver) -> None:
    kit.run("pay", {"amount": 12345678901234567890}, webhook=receiver.url())
    run_job(kit)
    assert b'"paid":12345678901234567890}' in receiver.got[0].body


def test_progress_is_told_if_asked_for_and_in_order(kit: Kit, receiver: Receiver) -> None:
    quiet = kit.run("pay", {"reports": 2}, webhook=receiver.url("/quiet"))
    kit.run("pay", {"reports": 2}, webhook=receiver.url("/chatty"), progress_reports=True)
    run_job(kit)
    assert [got.data["sequence"] for got in receiver.at("/quiet")] == [3]
    told = sorted(receiver.at("/chatty"), key=lambda got: int(got.data["sequence"]))
    assert [(got.json["type"], got.data["sequence"]) for got in told] == [
        ("transaction.progress", 1),
        ("transaction.progress", 2),
        ("transaction.completed", 3),
    ]
    assert [got.data["progress"] for got in told] == [{"done": 0}, {"done": 1}, {"done": 1}]
    assert [got.data["status"] for got in told] == ["running", "running", "success"]
    assert kit.status(quiet.tx_id).sequence == 3


def test_one_that_expires_is_told_too(kit: Kit, receiver: Receiver) -> None:
    tx_id = kit.submit("wait", {}, webhook=receiver.url(), expires_in_s=10)
    kit.advance(seconds=11)
    kit.advance(seconds=2)
    assert [got.data["status"] for got in receiver.got] == ["expired"]
    assert receiver.got[0].data["txId"] == tx_id


def test_one_that_is_cancelled_is_told_too(kit: Kit, receiver: Receiver) -> None:
    kit.lose_bells()
    tx_id = kit.submit("pay", {}, webhook=receiver.url())
    kit.client.cancel(tx_id)
    run_job(kit)
    assert [got.data["status"] for got in receiver.got] == ["cancelled"]


def test_signatures_hold_for_an_independent_verifier(kit: Kit, receiver: Receiver) -> None:
    store = kit.connections.webhooks.store
    kit.run("pay", {}, webhook=receiver.url(), owner="ann")
    run_job(kit)
    (first,) = store.signing_secrets({"ann"})["ann"]
    got = receiver.got[0]
    assert Webhook(first).verify(got.body, got.headers) == got.json
    second = store.rotate("ann", overlap_s=3_600)
    kit.run("pay", {}, webhook=receiver.url(), owner="ann")
    run_job(kit)
    got = receiver.got[1]
    assert len(got.headers["webhook-signature"].split()) == 2
    for secret in (first, second):
        Webhook(secret).verify(got.body, got.headers)
    kit.advance(seconds=3_601)
    kit.run("pay", {}, webhook=receiver.url(), owner="ann")
    run_job(kit)
    assert len(receiver.got[2].headers["webhook-signature"].split()) == 1
    assert store.signing_secrets({"ann"}) == {"ann": [second]}


def test_secrets_are_those_of_their_owner(kit: Kit) -> None:
    store = kit.connections.webhooks.store
    found = store.signing_secrets({"ann", "bob"})
    assert found["ann"] != found["bob"]
    assert found == store.signing_secrets({"ann", "bob"})
    assert len(base64.b64decode(found["ann"][0].removeprefix("whsec_"))) == 32


BAD: dict[str, tuple[Behaviour, str]] = {
    "500": (answers(500, body=b"try me\nlater"), "answered 500: try me later"),
    "hang": (hangs, "no answer within 0.4 s"),
    "drip": (drips, "no answer within 0.4 s"),
    "reset": (resets, "closed the connection before it answered"),
    "lost answer": (loses_its_answer, "the response was cut off"),
    "redirect": (
        answers(302, "location: http://169.254.169.254/latest/meta-data/"),
        "answered 302; redirects are not followed",
    ),
    "flood": (floods, "answered 500: xxx"),
    "429": (answers(429, "retry-after: 1000"), "answered 429"),
    "404": (answers(404), "answered 404"),
    "not HTTP": (is_no_web_server, "is not HTTP"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_bad_receiver_did_not_take_comes_again(
    kit: Kit, receiver: Receiver, name: str
) -> None:
    """Under the same id and with the same bytes, while others are not held up."""
    behaviour, error = BAD[name]
    receiver.plan("/bad", behaviour, behaviour)
    bad = kit.run("pay", {"amount": 1}, webhook=receiver.url("/bad")).tx_id
    with receiving() as other:
        good = kit.run("pay", {"amount": 2}, webhook=other.url("/good")).tx_id
        assert run_job(kit) == Result(found=0, delivered=1, failed=1, dead=0)
        assert len(other.got) == 1
    assert only(kit, good).state == "delivered"
    assert only(kit, bad).state == "pending"
    assert error in (only(kit, bad).last_error or "")
    kit.advance(seconds=1_200)
    assert (only(kit, bad).state, only(kit, bad).attempts) == ("pending", 2)
    kit.advance(seconds=1_200)
    assert (only(kit, bad).state, only(kit, bad).attempts) == ("delivered", 3)
    told = receiver.at("/bad")
    assert len(told) == 3
    assert len({(got.id, got.body) for got in told}) == 1
    assert receiver.flooded_bytes < 64 * 1_048_576


def test_a_receiver_that_is_gone_stops_it(kit: Kit, receiver: Receiver) -> None:
    receiver.plan("/gone", answers(410))
    tx_id = kit.run("pay", {}, webhook=receiver.url("/gone")).tx_id
    assert run_job(kit).dead == 1
    kit.advance(days=5)
    assert len(receiver.got) == 1
    assert only(kit, tx_id).state == "dead"
    assert kit.connections.webhooks.schedule.size() == 0


@pytest.mark.parametrize(
    ("header", "wait_s"), [("1000", 1_000), ("99999999999", 86_400), ("soon", 5)]
)
def test_a_receiver_can_ask_for_patience(
    kit: Kit, receiver: Receiver, header: str, wait_s: float
) -> None:
    receiver.plan("/busy", answers(429, f"retry-after: {header}"))
    tx_id = kit.run("pay", {}, webhook=receiver.url("/busy")).tx_id
    before = kit.clock.now()
    run_job(kit)
    assert before is not None
    waits_s = (only(kit, tx_id).next_at - before).total_seconds()
    assert waits_s == pytest.approx(wait_s, rel=0.11)


def test_ten_attempts_take_three_days_then_it_is_a_dead_letter(
    kit: Kit, receiver: Receiver
) -> None:
    receiver.always("/bad", answers(429))
    tx_id = kit.run("pay", {}, webhook=receiver.url("/bad")).tx_id
    began = kit.clock.now_ms() or 0
    for _ in range(10):
        run_job(kit)
        due_ms = only(kit, tx_id).next_at.timestamp() * 1_000
        kit.clock.advance(seconds=max(0, due_ms - (kit.clock.now_ms() or 0)) / 1_000 + 0.001)
    assert only(kit, tx_id).state == "dead"
    assert len(receiver.got) == 10
    days = ((kit.clock.now_ms() or 0) - began) / 86_400_000
    assert 2.6 < days < 3.4
    kit.advance(days=10)
    assert len(receiver.got) == 10


def test_a_dead_letter_can_be_listed_and_sent_again(kit: Kit, receiver: Receiver) -> None:
    receiver.plan("/gone", answers(410), answers(500))
    tx_id = kit.run("pay", {}, webhook=receiver.url("/gone"), owner="ann").tx_id
    run_job(kit)
    webhooks = kit.connections.webhooks
    (dead,) = webhooks.store.deliveries(state="dead")
    assert dead.tx_id == tx_id
    with pytest.raises(WebhookUnknown):
        webhooks.redeliver(dead.id, owner="bob")
    webhooks.redeliver(dead.id, owner="ann")
    with pytest.raises(WebhookBusy):
        webhooks.redeliver(dead.id)
    assert run_job(kit).failed == 1
    kit.advance(seconds=10)
    assert only(kit, tx_id).state == "delivered"
    assert len({got.id for got in receiver.got}) == 1
    assert [each.attempt for each in webhooks.store.attempts(dead.id)] == [3, 2, 1]


def test_all_dead_letters_of_an_owner_can_be_sent_again(kit: Kit, receiver: Receiver) -> None:
    receiver.plan("/gone", *[answers(410)] * 3)
    for owner in ("ann", "ann", "bob"):
        kit.run("pay", {}, webhook=receiver.url("/gone"), owner=owner)
    assert run_job(kit).dead == 3
    assert kit.connections.webhooks.redeliver_dead(owner="ann") == 2
    assert run_job(kit).delivered == 2
    assert [each.owner for each in kit.connections.webhooks.store.deliveries(state="dead")] == [
        "bob"
    ]


def test_a_long_poll_makes_the_webhook_needless_if_asked_for(kit: Kit, receiver: Receiver) -> None:
    tx_id = kit.run("pay", {}, webhook=receiver.url(), cancel_webhook_on_poll=True).tx_id
    events = EventStore(kit.connections.engine, kit.clock)
    summary = kit.status(tx_id)
    assert (summary.sequence, summary.notified_at) == (1, None)
    assert events.mark_notified(tx_id, 1, summary.cancel_webhook_on_poll) == 1
    assert kit.status(tx_id).notified_at == kit.clock.now()
    run_job(kit)
    assert receiver.got == []
    assert only(kit, tx_id).state == "cancelled"
    assert kit.connections.webhooks.schedule.size() == 0


def test_two_senders_at_once_send_each_attempt_once(
    new_kit: NewKit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picker, "PER_URL_MAX", 4)
    kit = new_kit()
    other = Container.open(kit.settings, clock=kit.clock, ring_webhooks=lambda: None)
    for number in range(60):
        kit.run("pay", {"amount": number}, webhook=receiver.url(f"/{number % 7}"))
    barrier = threading.Barrier(2)
    troubles: list[BaseException] = []

    def send(who: Container) -> None:
        try:
            barrier.wait()
            for _ in range(100):
                jobs.run("webhook_sender", who, lambda group: 0)
                kit.clock.advance(seconds=1)
                if len(receiver.got) >= 60:
                    break
        except BaseException as error:
            troubles.append(error)

    threads = [threading.Thread(target=send, args=(who,)) for who in (kit.connections, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert troubles == []
    assert len(receiver.got) == 60
    assert len({got.id for got in receiver.got}) == 60


def test_what_redis_has_lost_is_found_in_sql(kit: Kit, receiver: Receiver) -> None:
    kit.run("pay", {}, webhook=receiver.url())
    for key in kit.connections.redis.keys(f"{kit.settings.key_prefix}:*webhooksZ:*"):
        kit.connections.redis.delete(key)
    assert run_job(kit) == Result(found=0, delivered=0, failed=0, dead=0)
    kit.clock.advance(seconds=kit.settings.webhook_overdue_s + 1)
    assert run_job(kit) == Result(found=1, delivered=1, failed=0, dead=0)
    assert len(receiver.got) == 1


def test_what_redis_says_too_early_is_not_sent(kit: Kit, receiver: Receiver) -> None:
    receiver.plan("/bad", answers(500))
    tx_id = kit.run("pay", {}, webhook=receiver.url("/bad")).tx_id
    run_job(kit)
    kit.connections.webhooks.schedule.place([((tx_id, n, "local"), 0.0) for n in (1, 99)])
    run_job(kit)
    assert len(receiver.got) == 1
    assert kit.connections.webhooks.schedule.size() == 1
    kit.advance(seconds=6)
    assert len(receiver.got) == 2


def test_a_target_gets_no_more_at_once_than_it_may(
    new_kit: NewKit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picker, "PER_URL_MAX", 3)
    kit = new_kit(webhook_timeout_s=5)
    lock, now, most = threading.Lock(), 0, 0
    full = threading.Barrier(3)

    def counts(connection: Any, of: Receiver) -> bool:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        full.wait(5)
        with lock:
            now -= 1
        return answers(200)(connection, of)

    receiver.always("/narrow", counts)
    for _ in range(12):
        kit.run("pay", {}, webhook=receiver.url("/narrow?x=1"))
        kit.clock.advance(seconds=0.001)
    receiver.always("/narrow?x=1", counts)
    for _ in range(12):
        run_job(kit)
        kit.clock.advance(seconds=1)
    assert len(receiver.got) == 12
    assert most == 3


def test_a_target_that_hangs_does_not_hold_up_the_others(
    new_kit: NewKit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far more is due for it than this process may have under way."""
    monkeypatch.setattr(picker, "PER_URL_MAX", 4)
    kit = new_kit(webhook_workers=16, webhook_timeout_s=5)
    receiver.always("/hang", hangs)
    for _ in range(100):
        kit.run("pay", {}, webhook=receiver.url("/hang"))
    for number in range(20):
        kit.run("pay", {"amount": number}, webhook=receiver.url("/good"))
    sender = threading.Thread(target=run_job, args=(kit,))
    sender.start()

    def are_all_told() -> bool:
        kit.clock.advance(seconds=0.01)
        return len(receiver.at("/good")) == 20

    eventually(are_all_told, within_s=4)
    # Those that hang are still under way, and no more of them than may be.
    assert sender.is_alive()
    assert 1 <= len(receiver.at("/hang")) <= 4
    receiver.always("/hang", None)
    receiver.closed.set()
    sender.join()
