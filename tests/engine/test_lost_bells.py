"""A message is only a bell: one that gets lost is rung again."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Pipeline, Sleep
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.jobs import reconciler
from datp_tasks.jobs.reconciler import RING_DESPITE_BACKLOG_MAX
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

Data = dict[str, Any]


def declare(kit: Kit) -> list[str]:
    ran: list[str] = []

    @kit.step("t/note")
    def note(ctx: Any, data: Data) -> None:
        ran.append(ctx.idempotency_key.partition(":")[2])

    @kit.step("t/nap")
    def nap(ctx: Any, data: Data) -> Sleep | None:
        return Sleep(seconds=60) if ctx.sleeps == 0 else None

    kit.use(
        Pipeline("p").step("t/note").build(),
        Pipeline("hops").step("t/note").step("t/note", group="other").build(),
        Pipeline("nap").step("t/nap").step("t/note").build(),
    )
    return ran


def test_the_bell_of_a_new_transaction_is_rung_again(datp: Kit) -> None:
    ran = declare(datp)
    datp.lose_bells()
    tx_id = datp.submit("p", {})
    datp.lose_bells(False)
    datp.advance(seconds=datp.settings.ring_again_after_ms / 1_000 - 1)
    assert (datp.status(tx_id).status, ran) == (Status.QUEUED, [])
    datp.advance(seconds=1)
    assert (datp.status(tx_id).status, ran) == (Status.SUCCESS, ["0"])


def test_the_bell_of_a_hand_over_is_rung_again(datp: Kit) -> None:
    ran = declare(datp)

    @datp.step("t/deaf")
    def deaf(ctx: Any, data: Data) -> None:
        datp.lose_bells()

    datp.use(Pipeline("p").step("t/deaf").step("t/note", group="other").build())
    tx_id = datp.submit("p", {})
    assert datp.status(tx_id).status is Status.QUEUED
    datp.lose_bells(False)
    datp.recover()
    assert (datp.status(tx_id).status, ran) == (Status.SUCCESS, ["1"])


def test_the_bell_of_a_wake_up_is_rung_again(datp: Kit) -> None:
    ran = declare(datp)
    tx_id = datp.submit("nap", {})
    datp.crash_at("sleeper.before_ring")
    with pytest.raises(SimulatedCrash):
        datp.advance(seconds=60)
    assert datp.status(tx_id).status is Status.QUEUED
    datp.recover()
    assert (datp.status(tx_id).status, ran) == (Status.SUCCESS, ["1"])


def test_a_bell_that_is_lost_every_time_is_rung_every_time(datp: Kit) -> None:
    ran = declare(datp)
    datp.lose_bells()
    tx_id = datp.submit("p", {})
    for _ in range(4):
        datp.advance(seconds=datp.settings.ring_again_after_ms / 1_000)
    assert [pairs for _, pairs in datp.send.rung] == [[(tx_id, 1)]] * 5
    datp.lose_bells(False)
    datp.advance(seconds=datp.settings.ring_again_after_ms / 1_000)
    assert ran == ["0"]


def test_bells_in_a_long_queue_are_not_taken_for_lost(datp: Kit) -> None:
    """A queue that is worked off slowly must not grow by a bell for every bell that waits."""
    declare(datp)
    datp.lose_bells()
    for _ in range(60):
        datp.submit("p", {})
    datp.clock.advance(seconds=60)
    assert datp.run_job("reconciler", backlog=lambda group: 60).rung == (RING_DESPITE_BACKLOG_MAX)
    datp.clock.advance(seconds=60)
    assert datp.run_job("reconciler", backlog=lambda group: 0).rung == 60


def test_an_accepted_row_that_never_reached_redis_is_placed(datp: Kit) -> None:
    ran = declare(datp)
    datp.crash_at("submit.after_accept")
    with pytest.raises(SimulatedCrash):
        datp.submit("p", {"n": 2**70, "t": "é"}, external_id="order-1", metadata={"m": 1})
    summary = datp.client.find("local", "order-1")
    assert (summary.status, ran) == (Status.QUEUED, [])
    assert datp.connections.live.fields_many([summary.tx_id]) == [{}]
    datp.recover()
    summary = datp.status(summary.tx_id)
    assert (summary.status, summary.output) == (Status.SUCCESS, {"n": 2**70, "t": "é"})
    assert ran == ["0"]


def test_a_row_is_placed_with_everything_that_its_client_gave(datp: Kit) -> None:
    seen: list[Any] = []

    @datp.step("t/look")
    def look(ctx: Any, data: Data) -> None:
        seen.append((ctx.owner, ctx.external_id, ctx.metadata, data))

    datp.use(Pipeline("p", group="vault").step("t/look").build())
    datp.crash_at("submit.after_accept")
    with pytest.raises(SimulatedCrash):
        datp.submit("p", {"n": 1}, owner="acme", external_id="o-1", metadata={"m": 1})
    # The pipeline has changed since; the transaction keeps the version it was accepted with.
    datp.use(Pipeline("p").step("util/fixed-reply", params={"output": {"new": 1}}).build())
    datp.recover()
    assert seen == [("acme", "o-1", {"m": 1}, {"n": 1})]


def test_rows_that_are_there_or_were_just_accepted_are_left_alone(datp: Kit) -> None:
    declare(datp)
    datp.lose_bells()
    datp.submit("p", {})
    datp.crash_at("submit.after_accept")
    with pytest.raises(SimulatedCrash):
        datp.submit("p", {})
    # The second one's client may still be about to place it.
    assert datp.run_job("reconciler").placed == 0
    datp.clock.advance(seconds=datp.settings.ring_again_after_ms / 1_000)
    assert datp.run_job("reconciler").placed == 1
    assert datp.run_job("reconciler").placed == 0


def test_rows_are_placed_after_an_outage_of_any_length(datp: Kit) -> None:
    """What was accepted is never lost, also if nobody looked for days."""
    ran = declare(datp)
    datp.crash_at("submit.after_accept")
    with pytest.raises(SimulatedCrash):
        datp.submit("p", {}, external_id="order-1")
    datp.advance(days=3)
    assert datp.client.find("local", "order-1").status is Status.SUCCESS
    assert ran == ["0"]


def test_rows_from_before_the_window_are_looked_at_in_turn(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "BATCH_MAX", 7)
    kit = Kit(datp_servers)
    declare(kit)
    txs = [kit.submit("nap", {}) for _ in range(20)]
    # Later than the others: rows of the same moment are in the order of their ids.
    kit.clock.advance(seconds=1)
    kit.crash_at("submit.after_accept")
    with pytest.raises(SimulatedCrash):
        kit.submit("p", {}, external_id="late")
    kit.clock.advance(days=1)
    placed = [kit.run_job("reconciler").placed for _ in range(6)]
    assert (sum(placed), placed[2]) == (1, 1)
    assert kit.client.find("local", "late").status is Status.SUCCESS
    # And again from the start: somebody may have lost the first one meanwhile.
    keys = kit.connections.live.keys
    kit.connections.redis.delete(keys.state(txs[0]))
    kit.connections.redis.zrem(keys.of_tx(txs[0], "sleepingZ"), txs[0])
    assert sum(kit.run_job("reconciler").placed for _ in range(3)) == 1
    kit.close()


def test_more_rows_than_one_page_are_placed_in_one_run(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "BATCH_MAX", 7)
    kit = Kit(datp_servers)
    declare(kit)
    for number in range(20):
        kit.crash_at("submit.after_accept")
        with pytest.raises(SimulatedCrash):
            kit.submit("p", {}, external_id=f"order-{number}")
    kit.clock.advance(seconds=60)
    assert kit.run_job("reconciler").placed == 20
    assert {kit.client.find("local", f"order-{n}").status for n in range(20)} == {Status.SUCCESS}
    kit.close()
