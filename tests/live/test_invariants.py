"""The table of modes: it finds what is out of place, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datp_tasks.live import invariants
from datp_tasks.live.invariants import Violation, check_all, find_nodes
from datp_tasks.live.live_types import Claimed
from datp_tasks.model.status import FINAL, Status
from tests.support.live_states import NODE, OTHER_NODE, Stage

REACHED: dict[str, Callable[[Stage], Claimed]] = {
    "queued": Stage.taken_over,
    "running": Stage.claimed,
    "sleeping": Stage.sleeping,
    "in-doubt": Stage.parked,
    "final": Stage.finished,
    "archived": Stage.archived,
    "gone": Stage.gone,
}


def all_states(stage: Stage) -> dict[str, str]:
    """One transaction in each status."""
    return {name: reach(stage).tx_id for name, reach in REACHED.items()}


def zadd(list_name: str) -> Callable[[Stage, str], object]:
    return lambda stage, tx: stage.redis.zadd(stage.live.keys.of_tx(tx, list_name), {tx: 1})


def zrem(list_name: str) -> Callable[[Stage, str], object]:
    return lambda stage, tx: stage.redis.zrem(stage.live.keys.of_tx(tx, list_name), tx)


def hset(name: str, value: str) -> Callable[[Stage, str], object]:
    return lambda stage, tx: stage.redis.hset(stage.live.keys.state(tx), name, value)


def hdel(name: str) -> Callable[[Stage, str], object]:
    return lambda stage, tx: stage.redis.hdel(stage.live.keys.state(tx), name)


def expire(stage: Stage, tx: str) -> None:
    stage.redis.pexpire(stage.live.keys.state(tx), 1_000_000)


def persist(stage: Stage, tx: str) -> None:
    stage.redis.persist(stage.live.keys.state(tx))


def lose_state(stage: Stage, tx: str) -> None:
    stage.redis.delete(stage.live.keys.state(tx))


def run_elsewhere(stage: Stage, tx: str) -> None:
    stage.redis.sadd(stage.live.keys.of_tx(tx, f"runningS:{OTHER_NODE}"), tx)


def stop_running(stage: Stage, tx: str) -> None:
    stage.redis.srem(stage.live.keys.of_tx(tx, f"runningS:{NODE}"), tx)


def add_delta(stage: Stage, tx: str) -> None:
    stage.redis.rpush(stage.live.keys.deltas(tx), "{}")


BROKEN: list[tuple[str, Callable[[Stage, str], object], str]] = [
    ("queued", zrem("queuedZ"), "queued, but without queuedZ"),
    ("queued", zadd("processingZ"), "queued, but with processingZ"),
    ("queued", run_elsewhere, "queued, but with runningS"),
    ("queued", expire, "queued, but with ttl"),
    ("queued", hset("node", NODE), "queued, but with node"),
    ("queued", hset("wakeSwitch", "kyc"), "queued, but with wakeSwitch"),
    ("queued", hdel("stepType"), "queued, but without stepType"),
    ("queued", hset("sequence", "0"), "sequence is '0', not a number from 1 on"),
    ("queued", hset("priority", "soon"), "its priority is 'soon'"),
    ("running", zadd("queuedZ"), "running, but with queuedZ"),
    ("running", zrem("processingZ"), "running, but without processingZ"),
    ("running", stop_running, "running, but without runningS"),
    ("running", run_elsewhere, "node-a runs it, but it is in runningS of node-a, node-b"),
    ("running", hdel("node"), "running, but without node"),
    ("running", hset("node", OTHER_NODE), "node-b runs it, but it is in runningS of node-a"),
    ("running", hset("fence", "0"), "running, but its fence is 0: no worker claimed it"),
    ("running", hset("fence", "1.8e+12"), "fence is '1.8e+12', not a number from 0 on"),
    ("running", hset("problem", "why"), "running, but with problem"),
    ("running", expire, "running, but with ttl"),
    ("running", hset("jsonVersion", "9999999999999"), "or newer, but there are 1 deltas"),
    ("sleeping", zrem("sleepingZ"), "sleeping, but without sleepingZ"),
    ("sleeping", zadd("sleepingZ"), "but sleepingZ says otherwise"),
    ("sleeping", zadd("exceptionZ"), "sleeping, but with exceptionZ"),
    ("sleeping", hdel("wakeTime"), "sleeping, but without wakeTime"),
    ("sleeping", expire, "sleeping and about to leave, but SQL does not have it yet"),
    ("sleeping", add_delta, "as new as its version, or newer, but there are 1 deltas"),
    ("sleeping", hset("begun", "yes"), "begun is 'yes', not 1"),
    ("in-doubt", zrem("exceptionZ"), "in-doubt, but without exceptionZ"),
    ("in-doubt", hdel("problem"), "in-doubt, but without problem"),
    ("in-doubt", hdel("state"), "in-doubt, but without state"),
    ("final", zrem("toArchiveZ"), "final, but of toArchiveZ and ttl it has neither"),
    ("final", expire, "final, but of toArchiveZ and ttl it has both"),
    ("final", zadd("sleepingZ"), "final, but with sleepingZ"),
    ("final", hset("stepType", "t/x"), "final, but with stepType"),
    ("final", hset("cancel", "x"), "final, but with cancel"),
    ("final", hset("status", "perfect"), "its status is 'perfect', which is not a status"),
    ("final", hdel("status"), "its status is '', which is not a status"),
    ("archived", persist, "final, but of toArchiveZ and ttl it has neither"),
    ("gone", zadd("queuedZ"), "gone, but with queuedZ"),
    ("gone", zadd("exceptionZ"), "gone, but with exceptionZ"),
    ("gone", run_elsewhere, "gone, but with runningS"),
    ("gone", add_delta, "gone, but 1 deltas of it are left"),
    ("gone", hset("switch:kyc", "1:true"), "its status is '', which is not a status"),
    ("gone", zadd("toArchiveZ"), "gone, but with toArchiveZ"),
    ("queued", lose_state, "gone, but with queuedZ"),
    ("running", lose_state, "gone, but with processingZ"),
    ("sleeping", lose_state, "gone, but with toArchiveZ"),
    ("in-doubt", expire, "in-doubt, but with ttl"),
    ("in-doubt", lose_state, "gone, but with exceptionZ"),
]


def test_transactions_in_every_status_are_in_order(stage: Stage) -> None:
    for tx_id in all_states(stage).values():
        assert stage.faults(tx_id) == []
    assert check_all(stage.live) == []


@pytest.mark.parametrize(("name", "damage", "fault"), BROKEN)
def test_what_is_out_of_place_is_found(
    loose_stage: Stage, name: str, damage: Callable[[Stage, str], object], fault: str
) -> None:
    stage = loose_stage
    tx_id = all_states(stage)[name]
    damage(stage, tx_id)
    assert any(fault in each for each in stage.faults(tx_id)), stage.faults(tx_id)
    found = check_all(stage.live)
    assert {violation.tx_id for violation in found} == {tx_id}
    assert {violation.what for violation in found} == set(stage.faults(tx_id))


@pytest.mark.parametrize("name", ["queued", "running", "in-doubt"])
def test_one_that_goes_on_may_wait_for_sql_to_get_a_copy_of_it(stage: Stage, name: str) -> None:
    tx_id = all_states(stage)[name]
    zadd("toArchiveZ")(stage, tx_id)
    assert stage.faults(tx_id) == []


def test_one_that_sleeps_long_may_leave_memory_but_not_the_list_that_wakes_it(
    stage: Stage,
) -> None:
    tx_id = stage.sleeping(sleep_ms=10**9).tx_id
    assert stage.live.confirm_archived_many([(tx_id, stage.version(tx_id), "")]) == 1
    assert stage.faults(tx_id) == []
    lose_state(stage, tx_id)
    assert stage.score(tx_id, "sleepingZ") is not None
    assert stage.faults(tx_id) == []


def test_a_member_of_the_wrong_shard_and_rubbish_are_found(loose_stage: Stage) -> None:
    stage = loose_stage
    tx_id = stage.queued(shard="07").tx_id
    for shard, member in (("08", tx_id), ("09", "rubbish")):
        stage.redis.zadd(stage.live.keys.in_shard(shard, "queuedZ"), {member: 1})
    assert check_all(stage.live) == [
        Violation(tx_id, "no transaction of shard 08, but in queuedZ there"),
        Violation("rubbish", "no transaction of shard 09, but in queuedZ there"),
    ]


def test_many_are_looked_at_in_batches_and_no_more_is_told_than_asked_for(
    loose_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = loose_stage
    monkeypatch.setattr(invariants, "BATCH", 3)
    bells = stage.live.create_many([stage.new(shard=f"{n % 16:02d}") for n in range(40)])
    ids = {bell.tx_id for bell in bells if bell}
    for tx_id in ids:
        zrem("queuedZ")(stage, tx_id)
    found = check_all(stage.live)
    assert len(found) == 40
    assert {violation.tx_id for violation in found} == ids
    assert len(check_all(stage.live, violations_max=7)) == 7


def test_a_node_that_started_after_the_nodes_were_listed_is_no_violation(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.claimed(node="node-new")
    assert find_nodes(stage.live) == {"node-new"}
    monkeypatch.setattr(invariants, "find_nodes", lambda live: set())
    assert check_all(stage.live) == []


def test_the_table_knows_every_status() -> None:
    for text in (invariants.WHERE, invariants.FIELDS):
        rows = {line.split()[0] for line in text.strip().splitlines()[1:]}
        assert rows == {*(set(Status) - FINAL), "final", "gone"}


def test_other_prefixes_are_not_looked_at(stage: Stage) -> None:
    other = f"{stage.settings.key_prefix}2:{{07}}:queuedZ"
    stage.redis.zadd(other, {"rubbish": 1})
    assert check_all(stage.live) == []
    stage.redis.delete(other)
