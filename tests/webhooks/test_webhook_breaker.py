"""A target that fails again and again is left alone, the operator is told, and nothing is lost."""

from __future__ import annotations

import pytest

from datp_tasks.live.webhook_failures import Tries, WebhookFailures
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.webhook_queue import DEAD, DISABLED
from datp_tasks.testing import Kit
from datp_tasks.webhooks import verdict
from tests.support.eventually import eventually
from tests.support.receiver import Receiver, answers, receiving
from tests.webhooks.conftest import NewKit


def alerts(kit: Kit, kind: str) -> list[str]:
    return [each.subject for each in Alerts(kit.connections.engine, kit.clock).open_alerts(kind)]


def told_of(operator: Receiver, kind: str) -> list[tuple[str, str]]:
    found = [got.json for got in operator.got if got.data["kind"] == kind]
    return [(each["type"], each["data"]["subject"]) for each in found]


def test_a_broken_target_is_left_alone_and_found_again(
    new_kit: NewKit, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving() as operator:
        kit = new_kit(webhook_fails_max=3, alert_webhook_url=operator.url("/alerts"))
        receiver.always("/bad", answers(503))
        url = receiver.url("/bad")
        for _ in range(5):
            kit.run("pay", {}, webhook=url)
        kit.run_job("webhook_sender")
        tried = len(receiver.got)
        assert tried == 5
        assert alerts(kit, DISABLED) == [f"local {url}"]
        assert "nothing is sent there for 300 s" in caplog.text
        # While it is disabled, new ones wait, which costs them nothing; other targets go on.
        late = kit.run("pay", {}, webhook=url).tx_id
        kit.run("pay", {}, webhook=receiver.url("/good"))
        for _ in range(20):
            kit.advance(seconds=10)
        assert len(receiver.at("/bad")) == tried
        assert len(receiver.at("/good")) == 1
        (waiting,) = kit.connections.webhooks.store.deliveries(tx_id=late)
        assert (waiting.state, waiting.attempts, waiting.held) == ("pending", 0, True)
        # One attempt finds out that it is still broken.
        kit.advance(seconds=110)
        for _ in range(20):
            # When exactly is a matter of chance: pauses are spread.
            kit.advance(seconds=2)
        assert len(receiver.at("/bad")) == tried + 1
        receiver.always("/bad", None)
        for _ in range(12):
            kit.advance(seconds=40)
        deliveries = kit.connections.webhooks.store.deliveries(rows_max=100)
        assert {each.state for each in deliveries} == {"delivered"}
        assert alerts(kit, DISABLED) == []
        assert "arrive again" in caplog.text
        kit.run_job("watcher")
        eventually(lambda: len(told_of(operator, DISABLED)) == 2)
        assert told_of(operator, DISABLED) == [
            ("alert.raised", f"local {url}"),
            ("alert.cleared", f"local {url}"),
        ]


def test_failures_count_only_in_a_row(new_kit: NewKit, receiver: Receiver) -> None:
    kit = new_kit(webhook_fails_max=3)
    for _ in range(4):
        receiver.plan("/odd", answers(500), answers(500))
        kit.run("pay", {}, webhook=receiver.url("/odd"))
        kit.run_job("webhook_sender")
        kit.advance(seconds=6)
        kit.advance(seconds=30)
    assert len(receiver.got) == 12
    assert alerts(kit, DISABLED) == []


def test_failures_count_for_a_period_that_begins_with_the_first(kit: Kit) -> None:
    redis, keys = kit.connections.redis, kit.connections.live.keys
    failures = WebhookFailures(redis, keys)

    def fail() -> int:
        return failures.count({"a": Tries(failed=1, arrived=False)}, period_ms=60_000)["a"]

    assert [fail(), fail()] == [1, 2]
    [key] = redis.keys(keys.outside("webhookFail:*"))
    assert 50_000 < redis.pttl(key) <= 60_000
    redis.pexpire(key, 30_000)
    assert fail() == 3
    # A later failure does not begin it anew.
    assert redis.pttl(key) <= 30_000
    redis.pexpire(key, 1)
    eventually(lambda: not redis.exists(key))
    assert fail() == 1


def test_receivers_that_are_busy_or_gone_are_not_broken(
    new_kit: NewKit, receiver: Receiver
) -> None:
    kit = new_kit(webhook_fails_max=1)
    receiver.plan("/a", answers(429), answers(410))
    kit.run("pay", {}, webhook=receiver.url("/a"))
    kit.run_job("webhook_sender")
    kit.advance(seconds=10)
    assert len(receiver.got) == 2
    assert (alerts(kit, DISABLED), alerts(kit, DEAD)) == ([], [])


def test_the_operator_is_told_of_a_webhook_that_is_given_up(
    new_kit: NewKit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "GIVE_UP_S", 10)
    kit = new_kit(webhook_attempts_max=2)
    receiver.plan("/bad", answers(500), answers(500))
    tx_id = kit.run("pay", {}, webhook=receiver.url("/bad")).tx_id
    kit.run_job("webhook_sender")
    kit.advance(seconds=12)
    assert alerts(kit, DEAD) == [f"local {receiver.url('/bad')}"]
    kit.connections.webhooks.redeliver(f"msg_{tx_id}_1")
    assert alerts(kit, DEAD) == []


def test_what_waits_for_a_target_that_never_comes_back_is_given_up(
    new_kit: NewKit, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "GIVE_UP_S", 1_000)
    kit = new_kit(webhook_fails_max=1, webhook_disable_s=600)
    receiver.always("/bad", answers(500))
    for _ in range(3):
        kit.run("pay", {}, webhook=receiver.url("/bad"))
    for _ in range(8):
        kit.advance(seconds=300)
    found = kit.connections.webhooks.store.deliveries()
    assert {each.state for each in found} == {"dead"}
    assert kit.connections.webhooks.schedule.size() == 0
