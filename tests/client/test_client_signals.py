"""Switches and cancels: heard although the state is not in Redis yet, forgotten when refused."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Client, Pipeline, Sleep
from datp_tasks.errors import (
    DatpError,
    SwitchInvalid,
    TransactionError,
    TransactionFinal,
    TransactionUnknown,
)
from datp_tasks.live import store
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.record.signals import CANCEL, Signal
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

Data = dict[str, Any]


@pytest.fixture
def kit(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    """It has run for a while: SQL can tell that Redis has lost nothing since."""
    monkeypatch.setattr(store, "SWITCHES_MAX", 2)
    kit = Kit(datp_servers, shards=1)

    @kit.step("t/gate")
    def gate(ctx: Any, data: Data) -> Any:
        go = ctx.switch("go")
        return Sleep(switch="go", seconds=86_400) if go is None else {"go": go}

    kit.use(Pipeline("gated").step("t/gate").build())
    kit.submit("gated", {})
    kit.run_job("archiver")
    kit.run_job("reconciler")
    yield kit
    kit.close()


@pytest.fixture
def accepted(kit: Kit) -> str:
    """Accepted while Redis refused; it can be reached again, and no job has run since."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}/0"
        settings = replace(kit.settings, redis_url=url)
        with make_client(Container.open(settings, clock=kit.clock, send=kit.send)) as client:
            tx_id = client.submit("gated", {}).tx_id
    assert kit.connections.live.fields_many([tx_id]) == [{}]
    return tx_id


def kept(kit: Kit, *tx_ids: str) -> list[Signal]:
    """What SQL would say again to these, or to any transaction."""
    if tx_ids:
        return kit.connections.recovery.rebuilder.signals.of(tx_ids)
    with kit.connections.engine.connect() as sql:
        rows = sql.execute(text("SELECT tx_id, name, value FROM tx_signal"))
        return [Signal(*row) for row in rows]


# Not in Redis yet.


def test_a_switch_places_one_that_is_accepted_but_not_in_redis(kit: Kit, accepted: str) -> None:
    assert not kit.client.set_switch(accepted, "go", 7)
    # The worker that got it then has seen the switch.
    assert kit.status(accepted).output == {"go": 7}
    assert kit.operator.doctor().violations == []


def test_a_cancel_ends_one_that_is_accepted_but_not_in_redis_at_once(
    kit: Kit, accepted: str
) -> None:
    summary = kit.client.cancel(accepted, "never mind")
    assert (summary.status, summary.note) == (Status.CANCELLED, "never mind")
    assert kit.operator.doctor().violations == []
    kit.recover()
    assert kit.status(accepted).status is Status.CANCELLED


def test_a_wake_places_one_that_is_accepted_but_not_in_redis(kit: Kit, accepted: str) -> None:
    assert not kit.client.wake(accepted)
    assert kit.status(accepted).status is Status.SLEEPING


def test_what_others_said_before_it_was_placed_is_said_too(kit: Kit, accepted: str) -> None:
    """A client was lost between SQL and Redis; its switch counts, and so does the later one."""
    kit.connections.recovery.rebuilder.signals.add(Signal(accepted, "go", "1"))
    assert not kit.client.set_switch(accepted, "other", 2)
    assert kit.status(accepted).output == {"go": 1}


def test_a_switch_comes_too_late_for_one_that_was_cancelled_before_it_was_placed(
    kit: Kit, accepted: str
) -> None:
    request = StopRequest.cancel("enough")
    kit.connections.recovery.rebuilder.signals.add(Signal(accepted, CANCEL, request.to_text()))
    with pytest.raises(TransactionFinal):
        kit.client.set_switch(accepted, "go", 1)
    assert kit.status(accepted).status is Status.CANCELLED
    assert kept(kit, accepted) == [Signal(accepted, CANCEL, request.to_text())]


def test_one_whose_row_is_held_cannot_be_placed_now_and_the_signal_is_not_kept(
    kit: Kit, accepted: str
) -> None:
    with kit.connections.engine.begin() as other:
        other.exec_driver_sql(f"SELECT 1 FROM tx_summary WHERE tx_id = '{accepted}' FOR UPDATE")
        with pytest.raises(TransactionError, match="try again"):
            kit.client.cancel(accepted)
    assert kept(kit, accepted) == []
    assert kit.client.cancel(accepted).status is Status.CANCELLED


# Refused.


def asleep(kit: Kit) -> str:
    tx_id = kit.submit("gated", {})
    assert kit.status(tx_id).status is Status.SLEEPING
    return tx_id


def in_doubt(kit: Kit) -> str:
    """Parked by a worker that knows no further."""

    @kit.step("t/odd", on_crash="review")
    def odd(ctx: Any, data: Data) -> None: ...

    kit.use(Pipeline("odd").step("t/odd").build())
    kit.crash_at("hop.after_step")
    tx_id = kit.submit("odd", {})
    kit.recover()
    assert kit.status(tx_id).status is Status.IN_DOUBT
    return tx_id


def ended(kit: Kit) -> str:
    tx_id = asleep(kit)
    kit.client.set_switch(tx_id, "go", 1)
    assert kit.run_job("retention").signals == 1
    return tx_id


def ended_behind_its_back(kit: Kit) -> str:
    """SQL hears of the end while the client is on its way from SQL to Redis."""
    tx_id = asleep(kit)
    kit.connections.live.follow_sql([(tx_id, "failed")])
    return tx_id


def full(kit: Kit) -> str:
    tx_id = asleep(kit)
    for name in ("one", "two"):
        kit.client.set_switch(tx_id, name, 1)
    return tx_id


Ask = Callable[[Client, str], object]


def switch(client: Client, tx_id: str) -> object:
    return client.set_switch(tx_id, "go", 9)


def cancel(client: Client, tx_id: str) -> object:
    return client.cancel(tx_id, "why")


@pytest.mark.parametrize(
    ("reach", "ask", "error"),
    [
        (ended, switch, TransactionFinal),
        (ended, cancel, TransactionFinal),
        (ended_behind_its_back, switch, TransactionFinal),
        (ended_behind_its_back, cancel, TransactionFinal),
        (full, switch, SwitchInvalid),
        (in_doubt, cancel, TransactionError),
    ],
)
def test_a_signal_that_was_refused_is_not_kept(
    kit: Kit, reach: Callable[[Kit], str], ask: Ask, error: type[DatpError]
) -> None:
    tx_id = reach(kit)
    before = kept(kit, tx_id)
    with pytest.raises(error):
        ask(kit.client, tx_id)
    assert kept(kit, tx_id) == before
    assert not [each for each in before if each.name in ("go", CANCEL)]


def test_a_signal_to_one_that_does_not_exist_is_not_kept(kit: Kit) -> None:
    for ask in (switch, cancel):
        with pytest.raises(TransactionUnknown):
            ask(kit.client, "t00-" + "0" * 32)
    assert kept(kit) == []


def test_a_refused_signal_leaves_the_one_before_it_as_it_was(kit: Kit) -> None:
    tx_id = asleep(kit)
    kit.client.set_switch(tx_id, "other", 1)
    before = kept(kit, tx_id)
    kit.connections.live.follow_sql([(tx_id, "failed")])
    with pytest.raises(TransactionFinal):
        kit.client.set_switch(tx_id, "other", 2)
    assert kept(kit, tx_id) == before == [Signal(tx_id, "other", "1")]


def test_a_refused_signal_takes_nothing_back_that_was_said_after_it(kit: Kit) -> None:
    signals, tx_id = kit.connections.recovery.rebuilder.signals, asleep(kit)
    before = signals.add(Signal(tx_id, "other", "1"))
    assert before is None
    assert signals.add(Signal(tx_id, "other", "2")) == Signal(tx_id, "other", "1")
    signals.withdraw(Signal(tx_id, "other", "1"), before)
    assert kept(kit, tx_id) == [Signal(tx_id, "other", "2")]
