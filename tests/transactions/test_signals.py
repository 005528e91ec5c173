"""Switches and cancels that a client was told are set survive every loss of Redis."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import psycopg2
import pytest
from sqlalchemy.exc import OperationalError

from datp_tasks import Pipeline, Sleep
from datp_tasks.errors import TransactionMoved
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.jobs import reconciler
from datp_tasks.jobs.rebuild import SIGNALS_AGAIN_S
from datp_tasks.model.status import Status
from datp_tasks.record.signals import Signal, Signals
from datp_tasks.testing.kit import Kit
from datp_tasks.testing.servers import Servers
from datp_tasks.transactions.send_signals import SignalSender

Data = dict[str, Any]


def waiting(kit: Kit) -> str:
    @kit.step("t/first")
    def first(ctx: Any, data: Data) -> None: ...

    @kit.step("t/gate")
    def gate(ctx: Any, data: Data) -> Any:
        return {"go": ctx.switch("go")} if ctx.switch("go") else Sleep(switch="go", seconds=86_400)

    kit.use(Pipeline("gated").step("t/first").step("t/gate").build())
    return kit.submit("gated", {})


def wipe(kit: Kit) -> None:
    for key in kit.connections.redis.scan_iter(match=f"{kit.settings.key_prefix}:*"):
        kit.connections.redis.delete(key)
    kit.run_job("pipeline_cache")


def test_a_switch_that_sql_did_not_get_by_the_journal_is_set_again_after_a_wipe(datp: Kit) -> None:
    tx_id = waiting(datp)
    datp.run_job("archiver")
    # The bell of the wake-up is lost together with everything else.
    datp.lose_bells()
    datp.client.set_switch(tx_id, "go", 7)
    # Longer ago than signals are repeated to those that Redis still has.
    datp.clock.advance(seconds=2 * SIGNALS_AGAIN_S)
    wipe(datp)
    datp.lose_bells(False)
    datp.recover()
    assert datp.status(tx_id).output == {"go": 7}


def test_a_cancel_is_asked_for_again_after_a_wipe(datp: Kit) -> None:
    tx_id = waiting(datp)
    datp.run_job("archiver")
    datp.lose_bells()
    datp.client.cancel(tx_id, "changed my mind")
    wipe(datp)
    datp.lose_bells(False)
    datp.recover()
    found = datp.status(tx_id)
    assert (found.status, found.note) == (Status.CANCELLED, "changed my mind")


def test_after_a_restart_of_redis_the_last_switches_are_set_again(datp: Kit) -> None:
    tx_id = waiting(datp)
    lost_switch(datp, tx_id)
    assert datp.status(tx_id).output == {"go": True}


def test_however_many_signals_came_before_it_a_switch_is_set_again(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancel of a bulk is a thousand signals of one call."""
    monkeypatch.setattr(reconciler, "BATCH_MAX", 2)
    datp = Kit(datp_servers)
    tx_id = waiting(datp)
    for number in range(5):
        datp.client.set_switch(tx_id, f"other{number}", number)
    ended = [datp.submit("gated", {}) for _ in range(3)]
    for each in ended:
        datp.client.set_switch(each, "go", 1)
    datp.clock.advance(seconds=1)
    lost_switch(datp, tx_id)
    assert datp.status(tx_id).output == {"go": True}
    datp.close()


@pytest.mark.parametrize("loss", ["restart", "wipe"])
def test_a_switch_that_a_step_has_used_up_is_not_set_again(datp: Kit, loss: str) -> None:
    """One approval of two must not count twice."""
    approved: list[str] = []

    @datp.step("t/twice")
    def twice(ctx: Any, data: Data) -> Sleep | None:
        if ctx.switch("go"):
            approved.append(ctx.tx_id)
            ctx.set_switch("go", None)
        return Sleep(switch="go", seconds=86_400) if len(approved) < 2 else None

    datp.use(Pipeline("twice").step("t/twice").build())
    tx_id = datp.submit("twice", {})
    datp.run_job("reconciler")
    datp.client.set_switch(tx_id, "go", True)
    datp.client.set_switch(tx_id, "other", 1)
    datp.run_job("archiver")
    if loss == "restart":
        with datp.connections.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE live_server SET run_id = 'the one before'")
        datp.run_job("reconciler")
    else:
        wipe(datp)
        datp.recover()
    assert (datp.status(tx_id).status, len(approved)) == (Status.SLEEPING, 1)
    assert datp.connections.live.fields_many([tx_id])[0]["switch:other"].endswith(":1")
    datp.client.set_switch(tx_id, "go", True)
    assert (datp.status(tx_id).status, len(approved)) == (Status.SUCCESS, 2)


def gate_of_two(datp: Kit) -> tuple[str, list[str]]:
    """A transaction that needs two approvals, and those that it has got."""
    approved: list[str] = []

    @datp.step("t/twice")
    def twice(ctx: Any, data: Data) -> Sleep | None:
        if ctx.switch("go"):
            ctx.set_switch("go", None)
            approved.append(ctx.tx_id)
        return Sleep(switch="go", seconds=86_400) if len(approved) < 2 else None

    datp.use(Pipeline("twice").step("t/twice", retry={"max_attempts": 1}).build())
    return datp.submit("twice", {}), approved


def test_a_step_waits_while_postgresql_cannot_keep_that_it_used_a_switch(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the switch would be set again after a loss of Redis: one approval, counted twice."""
    tx_id, approved = gate_of_two(datp)
    tries: list[Signal] = []
    replace = Signals.replace

    def unavailable_once(self: Signals, signal: Signal) -> None:
        tries.append(signal)
        if len(tries) == 1:
            raise OperationalError("connect", {}, psycopg2.OperationalError("refused"))
        replace(self, signal)

    monkeypatch.setattr(Signals, "replace", unavailable_once)
    datp.client.set_switch(tx_id, "go", True)
    datp.recover()
    assert len(tries) == 2
    datp.run_job("archiver")
    wipe(datp)
    datp.recover()
    assert (datp.status(tx_id).status, len(approved)) == (Status.SLEEPING, 1)


def test_a_step_that_dies_between_both_stores_uses_a_switch_once(datp: Kit) -> None:
    """SQL has it as replaced, Redis does not, and loses even that it was set."""
    tx_id, approved = gate_of_two(datp)
    datp.run_job("archiver")
    datp.crash_at("switch.after_sql")
    datp.client.set_switch(tx_id, "go", True)
    assert (datp.status(tx_id).status, approved) == (Status.RUNNING, [])
    wipe(datp)
    datp.recover()
    assert (datp.status(tx_id).status, len(approved)) == (Status.SLEEPING, 1)
    datp.run_job("archiver")
    wipe(datp)
    datp.recover()
    assert (datp.status(tx_id).status, len(approved)) == (Status.SLEEPING, 1)


def test_other_switches_set_since_do_not_make_a_lost_one_count_as_replaced(datp: Kit) -> None:
    tx_id = waiting(datp)
    lost_switch(datp, tx_id, replaced_seq=2, others=3)
    assert datp.status(tx_id).output == {"go": True}


def test_a_switch_of_the_second_before_a_long_outage_of_redis_is_set_again(datp: Kit) -> None:
    """The archiver may find the new process before the reconciler does."""
    tx_id = waiting(datp)
    lost_switch(datp, tx_id, down_s=2 * SIGNALS_AGAIN_S)
    assert datp.status(tx_id).output == {"go": True}


def lost_switch(
    datp: Kit, tx_id: str, *, replaced_seq: int | None = None, others: int = 0, down_s: float = 0
) -> None:
    """A client is told that a switch is set, Redis loses it in a restart, the reconciler runs.

    `replaced_seq`: the number under which a step had replaced it; `others`: switches set since.
    """
    datp.run_job("reconciler")
    keys = datp.connections.live.keys
    before = datp.connections.live.fields_many([tx_id])[0]
    datp.lose_bells()
    datp.client.set_switch(tx_id, "go", True)
    datp.lose_bells(False)
    if replaced_seq is not None:
        signals = datp.connections.recovery.rebuilder.signals
        signals.replace(Signal(tx_id, "go", "true", replaced_seq=replaced_seq))
    # Redis comes back without its last second, and as another process.
    journal = keys.of_tx(tx_id, "journalX")
    found: Any = datp.connections.redis.xrevrange(journal, count=1)
    datp.connections.redis.xdel(journal, found[0][0])
    datp.connections.redis.delete(keys.state(tx_id))
    for name, value in before.items():
        datp.connections.redis.hset(keys.state(tx_id), name, value)
    datp.connections.redis.zrem(keys.of_tx(tx_id, "queuedZ"), tx_id)
    wake_ms = datp.connections.redis.hget(keys.state(tx_id), "wakeTime")
    datp.connections.redis.zadd(keys.of_tx(tx_id, "sleepingZ"), {tx_id: float(wake_ms or 0)})
    for number in range(others):
        datp.client.set_switch(tx_id, f"since{number}", number)
    if down_s:
        datp.clock.advance(seconds=down_s)
        datp.run_job("archiver")
    with datp.connections.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE live_server SET run_id = 'the one before'")
    datp.run_job("reconciler")


def test_signals_of_ended_transactions_are_forgotten_and_unknown_ones_never_kept(
    datp: Kit,
) -> None:
    tx_id = waiting(datp)
    datp.client.set_switch(tx_id, "other", 1)
    assert len(datp.connections.recovery.rebuilder.signals.of([tx_id])) == 1
    datp.client.set_switch(tx_id, "go", 1)
    assert datp.status(tx_id).status is Status.SUCCESS
    assert datp.run_job("retention").signals == 2
    assert datp.connections.recovery.rebuilder.signals.of([tx_id]) == []


@pytest.mark.parametrize("drained", [False, True])
def test_how_something_ended_reaches_archive_and_journal_although_redis_lost_it(
    datp: Kit, drained: bool
) -> None:
    """It ended after the journal was read last, or waited to be archived: SQL knows how."""
    tx_id = waiting(datp)
    datp.run_job("archiver")
    datp.client.set_switch(tx_id, "go", 1)
    assert datp.status(tx_id).status is Status.SUCCESS
    if drained:
        datp.run_job("archiver")
    wipe(datp)
    datp.run_job("reconciler")
    datp.advance(seconds=datp.settings.delay_before_archiving_s + 1)
    replay = datp.operator.replay(tx_id)
    assert replay.faults == []
    assert replay.view is not None
    assert replay.view.status == Status.SUCCESS
    with datp.connections.engine.connect() as sql:
        found = sql.exec_driver_sql("SELECT status FROM tx_state").scalars().all()
    assert found == ["success"]
    assert datp.operator.doctor().violations == []


def test_a_sleeper_that_dies_after_bringing_transactions_back_is_followed_by_another(
    datp: Kit,
) -> None:
    tx_id = waiting(datp)
    datp.run_job("archiver")
    datp.connections.redis.delete(datp.connections.live.keys.state(tx_id))
    datp.crash_at("locate.after_restore")
    datp.clock.advance(days=2)
    with pytest.raises(SimulatedCrash):
        datp.run_job("sleeper")
    datp.client.set_switch(tx_id, "go", 1)
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS
    assert datp.operator.doctor().violations == []


def test_one_that_alone_is_missing_in_redis_comes_back_with_its_switch(datp: Kit) -> None:
    """No loss of Redis is seen, so nothing but its rebuilding repeats what was said to it."""
    tx_id = waiting(datp)
    datp.run_job("archiver")
    datp.lose_bells()
    datp.client.set_switch(tx_id, "go", 7)
    datp.clock.advance(seconds=2 * SIGNALS_AGAIN_S)
    live, redis = datp.connections.live, datp.connections.redis
    redis.delete(
        live.keys.state(tx_id), live.keys.deltas(tx_id), live.keys.of_tx(tx_id, "journalX")
    )
    for name in ("queuedZ", "sleepingZ", "toArchiveZ"):
        redis.zrem(live.keys.of_tx(tx_id, name), tx_id)
    datp.lose_bells(False)
    datp.run_job("reconciler")
    assert datp.status(tx_id).output == {"go": 7}
    assert datp.operator.doctor().violations == []


@pytest.mark.parametrize("point", ["signal.after_sql", "cancel.after_record"])
@pytest.mark.parametrize("where", ["asleep", "evicted"])
def test_a_cancel_whose_client_died_is_asked_for_by_the_reconciler(
    datp: Kit, point: str, where: str
) -> None:
    """SQL has it, and Redis has lost nothing: without this it would sleep for its day."""
    tx_id = waiting(datp)
    datp.run_job("archiver")
    datp.crash_at(point)
    with pytest.raises(SimulatedCrash):
        datp.client.cancel(tx_id, "changed my mind")
    if where == "evicted":
        datp.connections.redis.delete(datp.connections.live.keys.state(tx_id))
    datp.clock.advance(seconds=30)
    datp.run_job("reconciler")
    found = datp.status(tx_id)
    assert (found.status, found.note) == (Status.CANCELLED, "changed my mind")
    assert datp.operator.doctor().violations == []


def test_many_cancels_whose_clients_died_have_their_turn(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a run ends before it has seen them all."""
    monkeypatch.setattr(reconciler, "CANCEL_PAGES_MAX", 1)
    monkeypatch.setattr(reconciler, "BATCH_MAX", 2)
    datp = Kit(datp_servers)
    tx_ids = [waiting(datp), *(datp.submit("gated", {}) for _ in range(4))]
    for tx_id in tx_ids:
        datp.clock.advance(seconds=1)
        datp.crash_at("signal.after_sql")
        with pytest.raises(SimulatedCrash):
            datp.client.cancel(tx_id, "changed my mind")
    datp.clock.advance(seconds=30)
    for left in (3, 1, 0):
        datp.run_job("reconciler")
        found = [datp.status(tx_id).status for tx_id in tx_ids]
        assert found.count(Status.SLEEPING) == left
    datp.close()


def request_in_row(kit: Kit, tx_id: str) -> str | None:
    with kit.connections.engine.connect() as sql:
        query = "SELECT stop_request FROM tx_summary WHERE tx_id = %(tx_id)s"
        found: str | None = sql.exec_driver_sql(query, {"tx_id": tx_id}).scalar_one()
        return found


def test_a_cancel_that_is_refused_leaves_the_one_before_it_in_the_row(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx_id = waiting(datp)
    datp.lose_bells()
    datp.client.cancel(tx_id)
    assert request_in_row(datp, tx_id) == "cancelled:cancelled by its owner"

    def refused(self: SignalSender, *given: Any) -> Any:
        raise TransactionMoved(tx_id)

    with monkeypatch.context() as patch:
        patch.setattr(SignalSender, "_sent", refused)
        with pytest.raises(TransactionMoved):
            datp.client.cancel(tx_id)
    assert request_in_row(datp, tx_id) == "cancelled:cancelled by its owner"


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_cancel_under_a_condition_is_in_the_row_only_after_redis_has_compared(
    datp: Kit, monkeypatch: pytest.MonkeyPatch, is_moved: bool
) -> None:
    tx_id = waiting(datp)
    datp.lose_bells()
    rows: list[str | None] = []
    send = SignalSender._sent

    def sent(self: SignalSender, *given: Any) -> Any:
        if is_moved:
            self._live.wake_many([tx_id], only_due=False)
        rows.append(request_in_row(datp, tx_id))
        return send(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(SignalSender, "_sent", sent)
        with pytest.raises(TransactionMoved) if is_moved else nullcontext():
            datp.client.cancel(tx_id, only_if=lambda _: True)
    assert rows == [None]
    kept = None if is_moved else "cancelled:cancelled by its owner"
    assert request_in_row(datp, tx_id) == kept
