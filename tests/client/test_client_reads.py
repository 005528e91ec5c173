"""Looking at transactions, and waiting for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from datp_tasks import Client, Pipeline, Sleep
from datp_tasks.errors import TransactionUnknown, WaitTimeout
from datp_tasks.model.status import Status
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.testing import Kit

Data = dict[str, Any]


@pytest.fixture(autouse=True)
def pipelines(datp: Kit) -> None:
    @datp.step("t/gate")
    def gate(ctx: Any, data: Data) -> Sleep | None:
        return Sleep(switch="go") if ctx.switch("go") is None else None

    datp.use(
        Pipeline("gate").step("t/gate").build(),
        Pipeline("p").step("util/fixed-reply", params={"output": {"ok": 1}}).build(),
    )


@pytest.fixture
def waiting(datp: Kit) -> Iterator[Client]:
    """A client with connections of its own."""
    with make_client(Container.open(datp.settings, clock=datp.clock, send=datp.send)) as client:
        yield client


def test_the_status_tells_where_a_transaction_is(datp: Kit) -> None:
    datp.lose_bells()
    tx_id = datp.submit("gate", {"n": 1}, external_id="o-1", metadata={"m": 1})
    summary = datp.client.status(tx_id)
    assert (summary.status, summary.is_final) == (Status.QUEUED, False)
    assert (summary.pipeline, summary.owner, summary.external_id) == ("gate", "local", "o-1")
    assert (summary.input, summary.metadata) == ({"n": 1}, {"m": 1})
    assert (summary.output, summary.progress, summary.note) == (None, None, None)
    assert summary.completed_at is None
    datp.lose_bells(False)
    datp.recover()
    assert datp.client.status(tx_id).status is Status.SLEEPING
    datp.client.set_switch(tx_id, "go", True)
    summary = datp.client.status(tx_id)
    assert (summary.status, summary.output) == (Status.SUCCESS, {"n": 1})
    assert datp.client.find("local", "o-1") == summary


def test_the_end_can_be_read_when_redis_has_forgotten_it(datp: Kit) -> None:
    tx_id = datp.run("p", {}).tx_id
    before = datp.status(tx_id)
    datp.advance(days=2)
    datp.connections.redis.delete(datp.connections.live.keys.state(tx_id))
    assert datp.status(tx_id) == before


@pytest.mark.parametrize("tx_id", ["", "x", "t00-", "t00-" + "0" * 32, "t99-" + "f" * 32])
def test_what_never_was_is_unknown(datp: Kit, tx_id: str) -> None:
    for ask in (datp.client.status, datp.client.wait, datp.client.cancel, datp.client.wake):
        with pytest.raises(TransactionUnknown, match=f"there is no transaction '{tx_id}'"):
            ask(tx_id)


def test_waiting_for_what_has_ended_takes_no_time(datp: Kit, waiting: Client) -> None:
    tx_id = datp.run("p", {}).tx_id
    started_s = time.monotonic()
    assert waiting.wait(tx_id, timeout_s=30).output == {"ok": 1}
    assert time.monotonic() - started_s < 5


def test_waiting_ends_with_the_transaction(datp: Kit, waiting: Client) -> None:
    tx_id = datp.submit("gate", {})
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(waiting.wait(tx_id, timeout_s=30)))
    thread.start()
    datp.client.set_switch(tx_id, "go", True)
    thread.join(30)
    assert [each.status for each in found] == [Status.SUCCESS]


def test_a_notification_ends_the_wait_before_the_slow_tick(
    datp: Kit, waiting: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datp_tasks.client.reads.SLOW_TICK_S", 60.0)
    tx_id = datp.submit("gate", {})
    looks = threading.Semaphore(0)
    locator = waiting._reader._locator
    summary_of = locator.summary

    def looked(tx: str) -> Any:
        summary = summary_of(tx)
        looks.release()
        return summary

    monkeypatch.setattr(locator, "summary", looked)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(waiting.wait(tx_id, timeout_s=50)))
    thread.start()
    # It has looked once and now only the notification can wake it in time.
    assert looks.acquire(timeout=20)
    datp.client.set_switch(tx_id, "go", True)
    thread.join(20)
    assert [each.status for each in found] == [Status.SUCCESS]


def test_a_missed_notification_costs_only_a_slow_tick(
    datp: Kit, waiting: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datp_tasks.client.reads.SLOW_TICK_S", 0.05)
    waiting._reader._notifications._channel = "a-channel-on-which-nothing-is-said"
    tx_id = datp.submit("gate", {})
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(waiting.wait(tx_id, timeout_s=30)))
    thread.start()
    datp.client.set_switch(tx_id, "go", True)
    thread.join(20)
    assert [each.status for each in found] == [Status.SUCCESS]


def test_many_threads_can_wait_for_many_transactions(datp: Kit, waiting: Client) -> None:
    txs = [datp.submit("gate", {"n": n}) for n in range(10)]
    found: dict[str, Any] = {}
    threads = [
        threading.Thread(target=lambda tx=tx: found.setdefault(tx, waiting.wait(tx, timeout_s=30)))
        for tx in txs
    ]
    for thread in threads:
        thread.start()
    for tx in txs:
        datp.client.set_switch(tx, "go", True)
    for thread in threads:
        thread.join(30)
    assert {tx: found[tx].input["n"] for tx in txs} == {tx: n for n, tx in enumerate(txs)}


def test_a_wait_that_is_over_says_how_things_stand(datp: Kit, waiting: Client) -> None:
    tx_id = datp.submit("gate", {})
    with pytest.raises(WaitTimeout) as over:
        waiting.wait(tx_id, timeout_s=0.05)
    assert str(over.value) == f"{tx_id} is still sleeping after 0.05 s"
    # It goes on regardless.
    assert datp.set_switch(tx_id, "go", True).status is Status.SUCCESS
