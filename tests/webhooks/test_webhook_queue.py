"""Claims in SQL: each attempt is made once, and a sender that comes back late spoils nothing."""

from __future__ import annotations

import threading

import pytest

from datp_tasks.record.webhook_queue import ClaimedDelivery, DeliveryOutcome, Waiting, WebhookQueue
from datp_tasks.settings import Settings
from datp_tasks.testing import Kit
from datp_tasks.webhooks.sender import Pace

HOLD_S = 40


def queue(kit: Kit, sender: str) -> WebhookQueue:
    return WebhookQueue(kit.connections.engine, kit.clock, sender)


@pytest.fixture
def ids(kit: Kit) -> list[str]:
    """Deliveries that are due."""
    made = [kit.run("pay", {}, webhook="https://example.com/").tx_id for _ in range(20)]
    return [f"msg_{tx_id}_1" for tx_id in made]


def claim_one(kit: Kit, sender: str, id: str) -> ClaimedDelivery:
    (claimed,) = queue(kit, sender).claim(queue(kit, sender).look([id]), HOLD_S)
    return claimed


def test_many_that_claim_the_same_attempts_get_each_once(kit: Kit, ids: list[str]) -> None:
    looked: list[Waiting] = queue(kit, "all").look(ids)
    assert len(looked) == 20
    got: list[ClaimedDelivery] = []
    barrier = threading.Barrier(4)

    def claim(sender: str) -> None:
        barrier.wait()
        got.extend(queue(kit, sender).claim(looked, HOLD_S))

    threads = [threading.Thread(target=claim, args=(f"s{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.id for each in got) == sorted(ids)
    assert queue(kit, "all").claim(looked, HOLD_S) == []


def test_what_was_looked_at_before_another_attempt_is_not_claimed_after_it(
    kit: Kit, ids: list[str]
) -> None:
    old = queue(kit, "old").look(ids[:1])
    claim_one(kit, "new", ids[0])
    kit.clock.advance(seconds=HOLD_S)
    assert queue(kit, "old").claim(old, HOLD_S) == []
    assert claim_one(kit, "new", ids[0]).attempt == 2


def test_a_sender_that_comes_back_late_with_a_failure_changes_nothing(
    kit: Kit, ids: list[str]
) -> None:
    late = claim_one(kit, "late", ids[0])
    kit.clock.advance(seconds=HOLD_S)
    claim_one(kit, "next", ids[0])
    failure = DeliveryOutcome(claimed=late, state="dead", status=500, error="x")
    assert queue(kit, "late").settle([failure]) == set()
    store = kit.connections.webhooks.store
    assert (store.find(ids[0]).state, store.find(ids[0]).attempts) == ("pending", 2)
    # Its attempt is on record all the same.
    assert [each.http_status for each in store.attempts(ids[0])] == [None, 500]


def test_a_sender_that_comes_back_late_with_a_success_is_believed(kit: Kit, ids: list[str]) -> None:
    late = claim_one(kit, "late", ids[0])
    kit.clock.advance(seconds=HOLD_S)
    again = claim_one(kit, "next", ids[0])
    assert queue(kit, "late").settle(
        [DeliveryOutcome(claimed=late, state="delivered", status=200)]
    ) == {ids[0]}
    assert (
        queue(kit, "next").settle([DeliveryOutcome(claimed=again, state="pending", wait_s=5)])
        == set()
    )
    assert kit.connections.webhooks.store.find(ids[0]).state == "delivered"


def test_one_sender_at_a_time_tries_whether_a_target_is_back(kit: Kit) -> None:
    first, second = queue(kit, "first"), queue(kit, "second")
    assert first.disable(("ann", "https://example.com/"), 300, "it fails")
    assert not second.disable(("ann", "https://example.com/"), 300, "it fails")
    assert not first.probe(("ann", "https://example.com/"), HOLD_S)
    kit.clock.advance(seconds=300)
    assert first.probe(("ann", "https://example.com/"), HOLD_S)
    assert not second.probe(("ann", "https://example.com/"), HOLD_S)
    assert first.enable(("ann", "https://example.com/")) == []
    assert second.enable(("ann", "https://example.com/")) is None


def test_two_that_rotate_at_once_leave_one_current_secret(kit: Kit) -> None:
    store = kit.connections.webhooks.store
    store.signing_secrets({"ann"})
    barrier = threading.Barrier(2)
    made: list[str] = []

    def rotate() -> None:
        barrier.wait()
        try:
            made.append(store.rotate("ann", overlap_s=60))
        except Exception as error:
            made.append(type(error).__name__)

    threads = [threading.Thread(target=rotate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    current = [each for each in store.secrets("ann") if each.retired_at is None]
    assert len(current) == 1
    assert set(made) <= {"WebhookBusy", *(each.secret for each in store.secrets("ann"))}


def test_at_most_five_secrets_sign_however_often_one_is_rotated(kit: Kit) -> None:
    store = kit.connections.webhooks.store
    made = [store.rotate("ann", overlap_s=3_600) for _ in range(7)]
    other = store.rotate("bob", overlap_s=3_600)
    assert store.signing_secrets({"ann", "bob"}) == {"ann": made[:1:-1], "bob": [other]}


def test_the_pause_while_all_places_are_taken_is_the_longer_one() -> None:
    assert Pace.of(Settings()).pause_busy_ms > Pace.of(Settings()).pause_ms
    assert Pace.of(Settings(webhook_pause_ms=900)).pause_busy_ms == 900
    pace = Pace.of(Settings(webhook_pause_ms=1, webhook_pause_busy_ms=2, webhook_pause_idle_ms=3))
    waits = [
        pace.wait_ms(is_full=is_full, is_more=is_more)
        for is_full, is_more in ((False, True), (True, True), (True, False), (False, False))
    ]
    assert waits == [1, 2, 2, 3]
