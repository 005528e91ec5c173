"""The operator's own URL: every kind of alert, raised and cleared, each event once."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from datp_tasks.jobs import watcher
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit
from datp_tasks.webhooks import alert_teller
from tests.support.eventually import eventually
from tests.support.receiver import Receiver, answers, receiving
from tests.webhooks.conftest import NewKit

Told = list[tuple[str, str, str]]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def operator() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def kit(new_kit: NewKit, operator: Receiver) -> Kit:
    return new_kit(alert_webhook_url=operator.url("/alerts"))


def alerts_of(kit: Kit) -> Alerts:
    return Alerts(kit.connections.engine, kit.clock)


def told(operator: Receiver) -> Told:
    return [(got.json["type"], got.data["kind"], got.data["subject"]) for got in operator.got]


def tell(kit: Kit) -> int:
    return kit.connections.webhooks._teller.tell_once()


def test_every_kind_is_told_when_it_is_raised_and_when_it_is_over(
    kit: Kit, operator: Receiver
) -> None:
    alerts = alerts_of(kit)
    alerts.raise_alert("redis-loss", "datp", "Redis came back empty")
    alerts.raise_alert("break-glass", "7", "one person acted alone")
    kit.run_job("watcher")
    eventually(lambda: len(operator.got) == 2)
    alerts.clear_alert("redis-loss", "datp")
    assert tell(kit) == 1
    assert told(operator) == [
        ("alert.raised", "redis-loss", "datp"),
        ("alert.raised", "break-glass", "7"),
        ("alert.cleared", "redis-loss", "datp"),
    ]
    assert len({got.id for got in operator.got}) == 3


def kinds() -> set[str]:
    """All kinds of alerts, as the page for operators lists them."""
    page = (ROOT / "docs" / "operations.md").read_text()
    table = page[page.index("| kind | means | do | clears |") :].split("\n\n")[0]
    return set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))


def test_no_kind_is_left_out(kit: Kit, operator: Receiver) -> None:
    assert {watcher.QUEUE_GROWS, watcher.LONG_RUNNING, "in-doubt", "webhook-dead"} <= kinds()
    for kind in kinds():
        alerts_of(kit).raise_alert(kind, "s", "told")
    while tell(kit):
        pass
    assert {kind for _, kind, _ in told(operator)} == kinds()


def test_several_processes_that_look_at_once_tell_each_event_once(
    kit: Kit, operator: Receiver
) -> None:
    for number in range(6):
        alerts_of(kit).raise_alert("queue-long", f"g{number}", "grows")
    threads = [threading.Thread(target=tell, args=(kit,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told(operator)) == [
        ("alert.raised", "queue-long", f"g{number}") for number in range(6)
    ]


def test_one_that_did_not_arrive_is_tried_again_later_under_its_id(
    kit: Kit, operator: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_teller, "TRY_AGAIN_MS", 1)
    operator.plan("/alerts", answers(503))
    alerts_of(kit).raise_alert("redis-loss", "datp", "Redis came back empty")
    assert (tell(kit), len(operator.got)) == (0, 1)
    eventually(lambda: tell(kit) == 1)
    assert len({got.id for got in operator.got}) == 1
    assert tell(kit) == 0


def test_a_flood_is_told_in_turns_and_old_alerts_not_at_all(kit: Kit, operator: Receiver) -> None:
    alerts_of(kit).raise_alert("queue-long", "old", "grows")
    kit.clock.advance(seconds=alert_teller.TOLD_OF_S + 1)
    for number in range(alert_teller.SENT_MAX + 1):
        alerts_of(kit).raise_alert("queue-long", f"g{number}", "grows")
    assert [tell(kit) for _ in range(3)] == [alert_teller.SENT_MAX, 1, 0]


def test_a_receiver_that_hangs_holds_up_no_job(
    kit: Kit, operator: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()
    monkeypatch.setattr(
        kit.connections.webhooks._teller, "_send", lambda *_: is_over.wait(10) or True
    )
    alerts_of(kit).raise_alert("redis-loss", "datp", "Redis came back empty")
    began_s = time.monotonic()
    for _ in range(3):
        kit.run_job("watcher")
    assert time.monotonic() - began_s < 5
    assert sum(thread.name == "datp-alerts" for thread in threading.enumerate()) == 1
    is_over.set()


def test_that_beat_is_silent_is_told_although_beat_brings_no_job(
    kit: Kit, operator: Receiver
) -> None:
    kit.process._look_at_beat()
    kit.clock.advance(seconds=60)
    kit.process._look_at_beat()
    eventually(lambda: told(operator) == [("alert.raised", "beat-silent", "master")])
