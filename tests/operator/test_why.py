"""`why` gives a right and useful answer for a transaction in each state."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Pipeline, Sleep
from datp_tasks.errors import TransactionUnknown
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.live.nodes import NodeRegister
from datp_tasks.model.actor import Actor
from datp_tasks.operator.why import Why
from datp_tasks.testing.kit import Kit

Data = dict[str, Any]


def declare(kit: Kit) -> None:
    @kit.step("t/nap")
    def nap(ctx: Any, data: Data) -> Any:
        return None if ctx.sleeps else Sleep(seconds=60)

    @kit.step("t/gate")
    def gate(ctx: Any, data: Data) -> Any:
        return None if ctx.switch("go") else Sleep(switch="go", seconds=600)

    @kit.step("t/flaky", retry={"max_attempts": 9, "first_s": 30, "factor": 1})
    def flaky(ctx: Any, data: Data) -> None:
        raise ConnectionError("the bank is closed")

    @kit.step("t/once", on_crash="review")
    def once(ctx: Any, data: Data) -> None: ...

    @kit.step("t/do")
    def do(ctx: Any, data: Data) -> None: ...

    for name in ("nap", "gate", "flaky", "once", "do"):
        kit.use(Pipeline(name).step(f"t/{name}").build())
    kit.use(Pipeline("away", group="kyc").step("t/do").build())


def why(kit: Kit, tx_id: str, bells: int = 0) -> Why:
    return kit.operator.why(tx_id, bells_in=lambda group: bells)


def a_node_beats(kit: Kit) -> None:
    """Eager workers serve no queue, so one that does is written into the register."""
    settings = kit.settings
    register = NodeRegister(
        kit.connections.live, stale_ms=settings.node_stale_ms, grace_ms=settings.node_grace_ms
    )
    register.write("node-1", ["master"], {"stepTypes": ["t/do", "t/nap"]})


def left_queued(kit: Kit, pipeline: str = "do") -> str:
    kit.lose_bells()
    tx_id = kit.submit(pipeline, {})
    a_node_beats(kit)
    return tx_id


def test_one_that_has_ended(datp: Kit) -> None:
    declare(datp)
    found = why(datp, datp.submit("do", {}))
    assert found.cause == "ended"
    assert "success" in found.answer


def test_an_unknown_one(datp: Kit) -> None:
    with pytest.raises(TransactionUnknown):
        why(datp, "t00-" + "0" * 32)


def test_one_that_is_in_line(datp: Kit) -> None:
    declare(datp)
    tx_id = left_queued(datp)
    found = why(datp, tx_id, bells=7)
    assert found.cause == "in-line"
    assert "behind 7 messages" in found.answer


def test_one_whose_bell_was_lost_and_when_it_rings_again(datp: Kit) -> None:
    declare(datp)
    tx_id = left_queued(datp)
    queued_ms = datp.connections.live.server_now_ms()
    datp.clock.advance(seconds=5)
    a_node_beats(datp)
    found = why(datp, tx_id)
    assert found.cause == "bell-lost"
    assert found.moves_at is not None
    again_ms = queued_ms + datp.settings.ring_again_after_ms
    assert found.moves_at.timestamp() * 1_000 == again_ms
    datp.lose_bells(False)
    datp.clock.advance(seconds=datp.settings.ring_again_after_ms / 1_000)
    datp.run_job("reconciler")
    assert why(datp, tx_id).cause == "ended"


def test_one_that_was_rung_again_waits_since_it_was_queued(datp: Kit) -> None:
    declare(datp)
    tx_id = left_queued(datp)
    again_s = datp.settings.ring_again_after_ms / 1_000
    for _ in range(4):
        datp.clock.advance(seconds=again_s)
        datp.run_job("reconciler")
    datp.clock.advance(seconds=2)
    a_node_beats(datp)
    found = why(datp, tx_id)
    assert f"since {4 * again_s + 2:.0f} s" in found.answer
    assert found.moves_at is not None
    next_ms = datp.connections.live.server_now_ms() + (again_s - 2) * 1_000
    assert found.moves_at.timestamp() * 1_000 == next_ms


def test_one_whose_group_has_no_worker(datp: Kit) -> None:
    declare(datp)
    found = why(datp, left_queued(datp, "away"))
    assert found.cause == "no-worker"
    assert found.hints == ["Start one: celery -A datp_tasks worker -Q kyc"]


def test_one_whose_group_is_stopped(datp: Kit) -> None:
    declare(datp)
    tx_id = left_queued(datp, "away")
    datp.connections.groups.set("kyc", {"concurrency": 0}, actor=Actor(name="test"), reason="test")
    found = why(datp, tx_id)
    assert (found.cause, found.hints) == ("group-stopped", ["datp groups set kyc concurrency=2"])


def test_one_whose_step_type_no_node_offers(datp: Kit) -> None:
    declare(datp)
    tx_id = left_queued(datp)
    keys = datp.connections.live.keys
    datp.connections.redis.hset(keys.state(tx_id), "stepType", "t/unheard-of")
    found = why(datp, tx_id)
    assert found.cause == "no-step-type"
    assert "t/unheard-of" in found.answer


def test_one_that_sleeps_and_one_that_should_have_woken(datp: Kit) -> None:
    declare(datp)
    tx_id = datp.submit("nap", {})
    found = why(datp, tx_id)
    assert found.cause == "sleeping"
    assert found.moves_at is not None
    assert found.moves_at.timestamp() * 1_000 == datp.connections.live.server_now_ms() + 60_000
    datp.clock.advance(seconds=90)
    assert why(datp, tx_id).cause == "wake-late"


def test_one_that_waits_for_a_switch(datp: Kit) -> None:
    declare(datp)
    tx_id = datp.submit("gate", {})
    found = why(datp, tx_id)
    assert found.cause == "switch"
    assert found.hints == [f"datp switch {tx_id} go <value>"]


def test_one_that_sleeps_and_has_left_redis(datp: Kit) -> None:
    declare(datp)
    tx_id = datp.submit("gate", {})
    datp.run_job("archiver")
    datp.connections.redis.delete(datp.connections.live.keys.state(tx_id))
    assert why(datp, tx_id).cause == "switch"


def test_one_that_is_tried_again_and_what_went_wrong(datp: Kit) -> None:
    declare(datp)
    found = why(datp, datp.submit("flaky", {}))
    assert found.cause == "retry"
    assert "failed 1 times" in found.answer
    assert "the bank is closed" in found.answer


def test_one_that_is_parked_and_how_to_resolve_it(datp: Kit) -> None:
    declare(datp)
    datp.crash_at("hop.after_step")
    tx_id = datp.submit("once", {})
    datp.recover()
    found = why(datp, tx_id)
    assert found.cause == "parked"
    assert len(found.hints) == 3


def test_one_whose_node_is_dead_fast_and_slow(datp: Kit) -> None:
    declare(datp)
    for pipeline, after_s in (("do", None), ("once", datp.settings.step_timeout_s)):
        datp.crash_at("hop.after_step")
        tx_id = datp.submit(pipeline, {})
        begun_ms = datp.connections.live.server_now_ms()
        datp.clock.advance(seconds=datp.settings.node_stale_ms / 1_000 + 1)
        found = why(datp, tx_id)
        assert found.cause == "node-dead"
        assert found.moves_at is not None
        if after_s is not None:
            waited_ms = found.moves_at.timestamp() * 1_000 - begun_ms
            assert waited_ms == pytest.approx(after_s * 1_000, abs=10)


def test_one_that_never_reached_redis(datp: Kit) -> None:
    declare(datp)
    datp.crash_at("submit.after_accept")
    with pytest.raises(SimulatedCrash):
        datp.submit("do", {}, external_id="x")
    tx_id = datp.client.find("local", "x").tx_id
    assert why(datp, tx_id).cause == "not-in-memory"


def test_a_cancel_and_an_expiry_are_told(datp: Kit) -> None:
    declare(datp)
    tx_id = datp.submit("flaky", {}, expires_in_s=3_600)
    datp.lose_bells()
    datp.client.cancel(tx_id, "no longer wanted")
    found = why(datp, tx_id, bells=1)
    assert "no longer wanted" in found.answer
    assert "expires at" in found.answer
