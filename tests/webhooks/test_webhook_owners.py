"""What one owner has pending, hanging or broken does not hold up another's webhooks."""

from __future__ import annotations

import random
import threading
from dataclasses import replace

import pytest

from datp_tasks import Pipeline
from datp_tasks.errors import WebhookInvalid
from datp_tasks.model.actor import Actor
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.webhook_queue import DEAD, WebhookQueue
from datp_tasks.testing import Kit
from datp_tasks.webhooks import picker
from datp_tasks.webhooks.picker import Capacity, Picker
from datp_tasks.webhooks.sender import Pace
from datp_tasks.webhooks.signing import signed_headers
from tests.support.eventually import eventually
from tests.support.receiver import Receiver, answers, hangs, receiving
from tests.webhooks.conftest import NewKit


def owners_told(kit: Kit, receiver: Receiver) -> list[str]:
    return [kit.status(got.data["txId"]).owner for got in receiver.got]


def test_receivers_of_one_owner_that_hang_leave_places_for_another(
    new_kit: NewKit, receiver: Receiver
) -> None:
    """Each at a URL of its own, and far more than the process has places."""
    kit = new_kit(webhook_workers=16, webhook_timeout_s=5)
    for number in range(60):
        receiver.always(f"/hang/{number}", hangs)
        kit.run("pay", {}, webhook=receiver.url(f"/hang/{number}"), owner="ann")
    sender = threading.Thread(target=kit.run_job, args=("webhook_sender",))
    sender.start()
    eventually(lambda: len(receiver.got) >= 8, within_s=4)
    for _ in range(3):
        kit.run("pay", {}, webhook=receiver.url("/good"), owner="bob")
        before = len(receiver.at("/good"))

        def is_told(before: int = before) -> bool:
            kit.clock.advance(seconds=0.01)
            kit.connections.webhooks.run(kit_pace(kit))
            return len(receiver.at("/good")) > before

        eventually(is_told, within_s=2)
    assert sender.is_alive()
    receiver.closed.set()
    sender.join()


def kit_pace(kit: Kit) -> Pace:
    return replace(Pace.of(kit.settings), run_s=0.0)


def test_what_one_owner_has_pending_is_not_before_what_another_has(
    new_kit: NewKit, receiver: Receiver
) -> None:
    kit = new_kit(webhook_workers=4)
    for _ in range(120):
        kit.run("pay", {}, webhook=receiver.url("/ann"), owner="ann")
    kit.clock.advance(seconds=1)
    kit.run("pay", {}, webhook=receiver.url("/bob"), owner="bob")
    kit.run_job("webhook_sender")
    for _ in range(200):
        if len(receiver.got) == 121:
            break
        kit.advance(seconds=1)
    assert len(receiver.got) == 121
    assert owners_told(kit, receiver).index("bob") < 12


def test_an_owner_that_had_its_turn_goes_behind_those_that_wait(new_kit: NewKit) -> None:
    """However long its own have been due: with more owners than places, others would never be."""
    kit = new_kit()
    schedule = kit.connections.webhooks.schedule
    shard = next(iter(kit.connections.live.shards))

    def place(number: int, owner: str) -> None:
        schedule.place([((f"t{shard}-{number:032x}", 1, owner), 0.0)])

    for number in range(5):
        place(number, "ann")
    kit.clock.advance(seconds=60)
    place(6, "bob")
    place(7, "kim")
    turns = []
    for _ in range(4):
        kit.clock.advance(seconds=1)
        [(_, _, owner)] = schedule.take(batch_max=1, hold_s=600, room=lambda _: 1)
        turns.append(owner)
    assert turns[0] == turns[3] == "ann"
    assert sorted(turns[1:3]) == ["bob", "kim"]


def test_what_redis_lost_of_one_owner_hides_nothing_of_another(
    new_kit: NewKit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picker, "BATCH_MAX", 6)
    kit = new_kit()
    for _ in range(40):
        kit.run("pay", {}, webhook=receiver.url("/ann"), owner="ann")
    kit.clock.advance(seconds=1)
    kit.run("pay", {}, webhook=receiver.url("/bob"), owner="bob")
    for key in kit.connections.redis.keys(f"{kit.settings.key_prefix}:*webhook*"):
        kit.connections.redis.delete(key)
    kit.clock.advance(seconds=kit.settings.webhook_overdue_s + 1)
    kit.run_job("webhook_sender")
    assert "bob" in owners_told(kit, receiver)


def test_a_target_that_one_owner_broke_is_tried_for_another(
    new_kit: NewKit, receiver: Receiver
) -> None:
    kit = new_kit(webhook_fails_max=3)
    receiver.plan("/shared", *[answers(500)] * 5)
    for _ in range(5):
        kit.run("pay", {}, webhook=receiver.url("/shared"), owner="ann")
    kit.run_job("webhook_sender")
    kit.run("pay", {}, webhook=receiver.url("/shared"), owner="ann")
    kit.run("pay", {}, webhook=receiver.url("/shared"), owner="bob")
    kit.run_job("webhook_sender")
    assert owners_told(kit, receiver) == ["ann"] * 5 + ["bob"]


def test_an_owner_that_tries_again_clears_no_alert_of_the_operator(
    new_kit: NewKit, receiver: Receiver
) -> None:
    kit = new_kit(webhook_attempts_max=1)
    receiver.plan("/bad", *[answers(500)] * 3)
    tx_id = kit.run("pay", {}, webhook=receiver.url("/bad"), owner="ann").tx_id
    kit.run_job("webhook_sender")
    alerts = Alerts(kit.connections.engine, kit.clock)
    webhooks = kit.connections.webhooks
    assert len(alerts.open_alerts(DEAD)) == 1
    webhooks.redeliver(f"msg_{tx_id}_1", owner="ann")
    assert len(alerts.open_alerts(DEAD)) == 1
    kit.run_job("webhook_sender")
    webhooks.redeliver_dead(owner="ann")
    assert len(alerts.open_alerts(DEAD)) == 1
    kit.run_job("webhook_sender")
    webhooks.redeliver(f"msg_{tx_id}_1", actor=Actor(name="olga"))
    assert alerts.open_alerts(DEAD) == []


def test_a_private_host_can_be_for_one_owner_alone(new_kit: NewKit, receiver: Receiver) -> None:
    kit = new_kit(webhook_private_hosts=("ann=127.0.0.1",))
    with pytest.raises(WebhookInvalid):
        kit.run("pay", {}, webhook=receiver.url(), owner="bob")
    tx_id = kit.run("pay", {}, webhook=receiver.url(), owner="ann").tx_id
    # Not even with a row that was made while more was allowed.
    with kit.connections.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO webhook_delivery (id, tx_id, sequence, kind, owner, url, target, payload,"
            " begun_at, next_at, created_at) SELECT 'msg_' || tx_id || '_9', tx_id, 9, kind, 'bob',"
            " url, target, payload, begun_at, next_at, created_at FROM webhook_delivery"
        )
    kit.connections.webhooks.schedule.place([((tx_id, 9, "bob"), 0.0)])
    kit.run_job("webhook_sender")
    assert [got.id for got in receiver.got] == [f"msg_{tx_id}_1"]


def test_an_owner_named_operator_does_not_sign_alerts(new_kit: NewKit, receiver: Receiver) -> None:
    with receiving() as operator:
        kit = new_kit(webhook_fails_max=1, alert_webhook_url=operator.url("/alerts"))
        receiver.plan("/bad", answers(500))
        kit.run("pay", {}, webhook=receiver.url("/bad"), owner="operator")
        kit.run_job("webhook_sender")
        kit.run_job("watcher")
        eventually(lambda: operator.got)
        (told,) = operator.got
        (secret,) = kit.connections.webhooks.store.signing_secrets({"operator"})["operator"]
        timestamp_s = int(told.headers["webhook-timestamp"])
        forged = signed_headers(told.id, timestamp_s, told.body, [secret])
        assert forged["webhook-signature"] != told.headers["webhook-signature"]


def test_targets_of_one_owner_that_may_be_back_are_tried_within_its_places(
    new_kit: NewKit, receiver: Receiver
) -> None:
    """Each may hang again: many at once would take the places of all others, and more."""
    kit = new_kit(webhook_workers=8, webhook_disable_s=60)
    queue = WebhookQueue(kit.connections.engine, kit.clock, "here")
    for number in range(40):
        url = receiver.url(f"/back/{number}")
        kit.run("pay", {}, webhook=url, owner="ann")
        queue.disable(("ann", url), 60, "it failed")
    kit.clock.advance(seconds=61)
    picker = Picker(kit.settings, queue, kit.connections.webhooks.schedule, random.Random(1))
    picked = picker.pick(Capacity(8))
    assert 1 <= len(picked.claimed) <= 6
    assert {each.is_probe for each in picked.claimed} == {True}
    assert picked.turn_s is not None


def test_a_sealed_webhook_that_cannot_be_opened_waits_for_the_key_ring(
    new_kit: NewKit, receiver: Receiver
) -> None:
    kit = new_kit()
    kit.use(Pipeline("sealed", sealed=True).step("hook/reports").build())
    vault = kit.connections.seals.vault
    tx_id = kit.run("sealed", {"amount": 5}, webhook=receiver.url("/hook")).tx_id
    ring, vault.ring = vault.ring, None
    vault._known.clear()
    kit.run_job("webhook_sender")
    assert receiver.got == []
    [delivery] = kit.connections.webhooks.store.deliveries(tx_id=tx_id)
    assert (delivery.state, delivery.attempts) == ("pending", 1)
    vault.ring = ring
    kit.advance(seconds=120)
    kit.run_job("webhook_sender")
    assert [got.json["data"]["output"] for got in receiver.got] == [{"paid": 5}]
