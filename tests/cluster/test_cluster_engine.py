"""The whole engine with its state on three masters: what works on one server works here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.errors import ExternalIdConflict
from datp_tasks.jobs.rebuild import REDIS_LOSS
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.cluster_redis import ClusterRedis
from datp_tasks.live.invariants import Violation, check_all
from datp_tasks.live.metrics import Metrics
from datp_tasks.live.store import LiveStore
from datp_tasks.local.redis_cluster import RedisCluster
from datp_tasks.model.actor import Actor
from datp_tasks.model.status import Status
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import HOUR_S, World

MANY = 32


@pytest.fixture
def datp_servers(datp_servers: Servers, three_masters: RedisCluster) -> Servers:
    """The kit of these tests keeps its state on the cluster."""
    return replace(datp_servers, redis_url=three_masters.url, redis_cluster=True)


@pytest.fixture
def world(sound: World) -> World:
    """With an audit of every transaction at the end."""
    return sound


def masters_of(live: LiveStore, tx_ids: list[str]) -> Counter[str]:
    """How many of these transactions each master has."""
    assert isinstance(live.redis, ClusterRedis)
    servers = live.redis.servers.masters()
    found: Counter[str] = Counter()
    for server in servers:
        for key in server.scan_iter(match=live.keys.in_shard("*", "stateH:*"), count=1_000):
            if str(key).rpartition(":")[2] in tx_ids:
                found[str(server.info("server")["run_id"])] += 1
    return found


def test_transactions_of_many_calls_lie_on_all_masters_and_all_end(datp: Kit, world: World) -> None:
    tx_ids = [datp.submit("quick", {"n": n}) for n in range(MANY)]
    spread = masters_of(datp.connections.live, tx_ids)
    assert len(spread) == 3
    assert spread.total() == MANY
    outputs = [datp.status(tx_id).output for tx_id in tx_ids]
    assert outputs == [{"n": n, "booked": 1} for n in range(MANY)]
    assert [world.times("book", tx_id) for tx_id in tx_ids] == [1] * MANY


def test_one_vector_runs_transactions_of_all_masters(datp: Kit, world: World) -> None:
    tx_ids = [world.queued("quick") for _ in range(MANY)]
    pairs = [pair for _, pairs in datp.send.rung[-MANY:] for pair in pairs]
    live = datp.connections.live
    before = live.round_trips
    assert datp.celery.tasks["datp.step.t/book"].apply_async(args=(pairs,)).get() == MANY
    assert live.round_trips - before < 10
    assert {datp.status(tx_id).status for tx_id in tx_ids} == {Status.SUCCESS}


def test_an_external_id_is_unique_on_whichever_master_it_lies(datp: Kit, world: World) -> None:
    for number in range(20):
        first = datp.client.submit("quick", {"n": 1}, external_id=f"o-{number}")
        again = datp.client.submit("quick", {"n": 1}, external_id=f"o-{number}")
        assert again.tx_id == first.tx_id
        with pytest.raises(ExternalIdConflict):
            datp.client.submit("quick", {"n": 2}, external_id=f"o-{number}")


def test_sleepers_of_all_masters_wake_and_a_switch_wakes_one(datp: Kit, world: World) -> None:
    resting = [datp.submit("rest", {"seconds": 60}) for _ in range(20)]
    waiting = [datp.submit("wait", {}) for _ in range(20)]
    assert datp.connections.live.sizes()["sleepingZ"] == 40
    datp.advance(seconds=61)
    assert {datp.status(tx_id).status for tx_id in resting} == {Status.SUCCESS}
    for number, tx_id in enumerate(waiting):
        assert datp.set_switch(tx_id, "go", number).output == {"go": number, "booked": 1}


def test_child_pipelines_and_rollbacks_go_their_way(datp: Kit, world: World) -> None:
    families = [datp.run("family", {}) for _ in range(4)]
    assert {each.status for each in families} == {Status.SUCCESS}
    undone = [datp.run("undo", {}) for _ in range(4)]
    assert {each.status for each in undone} == {Status.FAILED}
    assert [world.times("unbook", each.tx_id) for each in undone] == [1] * 4


def test_cancels_end_what_was_not_begun_and_turn_around_what_was(datp: Kit, world: World) -> None:
    fresh = [world.queued("quick") for _ in range(8)]
    begun = [datp.submit("rest", {}) for _ in range(8)]
    for tx_id in (*fresh, *begun):
        datp.client.cancel(tx_id, "enough")
    assert {datp.status(tx_id).status for tx_id in (*fresh, *begun)} == {Status.CANCELLED}
    assert [world.times("unbook", tx_id) for tx_id in begun] == [1] * 8


def test_what_dead_workers_held_on_any_master_is_taken_over(datp: Kit, world: World) -> None:
    points = ("hop.after_claim", "hop.after_step", "hop.after_checkpoint", "hop.after_final")
    tx_ids = [world.crashed("hop", point) for point in points for _ in range(3)]
    for _ in range(3):
        datp.recover()
    assert {datp.status(tx_id).status for tx_id in tx_ids} == {Status.SUCCESS}
    assert all(2 <= world.times("book", tx_id) <= 3 for tx_id in tx_ids)


def test_an_unsafe_step_that_crashed_is_parked_and_resolved(datp: Kit, world: World) -> None:
    tx_id = world.crashed("pay", "hop.after_step", nth=2)
    assert world.ends(tx_id) is Status.IN_DOUBT
    datp.operator.resolve(
        tx_id, "done", output={"paid": "seen"}, actor=Actor(name="me"), reason="asked"
    )
    assert world.ends(tx_id) is Status.SUCCESS
    assert world.times("pay", tx_id) == 1


def test_the_archiver_empties_the_journals_of_all_masters(datp: Kit, world: World) -> None:
    tx_ids = [datp.submit("wait", {}) for _ in range(MANY)]
    assert world.backlog() >= MANY
    world.archive()
    assert world.backlog() == 0
    world.evict(*tx_ids)
    assert masters_of(datp.connections.live, tx_ids).total() == 0
    # Each is brought back by the switch that it waits for.
    for tx_id in tx_ids:
        assert datp.set_switch(tx_id, "go", 1).status is Status.SUCCESS


def test_sleepers_that_left_all_masters_are_brought_back_in_time(datp: Kit, world: World) -> None:
    tx_ids = [world.asleep_and_gone("rest") for _ in range(20)]
    datp.advance(seconds=HOUR_S + 1)
    assert {datp.status(tx_id).status for tx_id in tx_ids} == {Status.SUCCESS}


def test_what_one_master_has_lost_is_rebuilt_and_the_others_stay(
    datp: Kit, world: World, three_masters: RedisCluster
) -> None:
    live = datp.connections.live
    waiting = [datp.submit("wait", {"n": n}) for n in range(MANY)]
    queued = [world.queued("quick", {"n": n}) for n in range(MANY)]
    in_doubt = [world.crashed("pay", "hop.after_step", nth=2) for _ in range(3)]
    datp.recover()
    world.archive()
    datp.clock.advance(seconds=1)
    before = {tx_id: world.fields(tx_id) for tx_id in waiting}
    three_masters.masters[1].ask("FLUSHALL")
    lost = [tx_id for tx_id in waiting if not world.fields(tx_id)]
    assert 0 < len(lost) < MANY
    lost_shards = datp.operator.doctor().lost_shards
    assert {tx_id[1:3] for tx_id in lost} <= set(lost_shards)
    assert len(lost_shards) < len(live.shards)
    assert datp.run_job("reconciler").rebuilt >= len(lost)
    for tx_id in set(waiting) - set(lost):
        assert world.fields(tx_id) == before[tx_id]
    assert not datp.operator.doctor().lost_shards
    alerts = Alerts(datp.connections.engine, datp.clock)
    assert alerts.open_alerts(REDIS_LOSS) == []
    datp.recover()
    for number, tx_id in enumerate(waiting):
        assert datp.set_switch(tx_id, "go", 1).output == {"n": number, "go": 1, "booked": 1}
    assert {datp.status(tx_id).status for tx_id in queued} == {Status.SUCCESS}
    assert {datp.status(tx_id).status for tx_id in in_doubt} == {Status.IN_DOUBT}
    assert [world.times("pay", tx_id) for tx_id in in_doubt] == [1, 1, 1]


def test_the_processes_of_all_masters_are_known(datp: Kit, three_masters: RedisCluster) -> None:
    known = ArchiveFeed(datp.connections.live).run_id().split()
    infos = [str(each.ask("INFO", "server")) for each in three_masters.masters]
    assert len(known) == len(infos) == 3
    assert all(any(run_id in info for info in infos) for run_id in known)


def test_invariants_are_checked_on_every_master(datp: Kit, world: World) -> None:
    live = datp.connections.live
    tx_ids = [datp.submit("wait", {}) for _ in range(MANY)]
    assert check_all(live) == []
    for tx_id in tx_ids:
        live.redis.zrem(live.keys.of_tx(tx_id, "sleepingZ"), tx_id)
    expected = {Violation(tx_id, "sleeping, but without sleepingZ") for tx_id in tx_ids}
    assert set(check_all(live)) == expected
    for tx_id in tx_ids:
        wake = {tx_id: float(world.fields(tx_id)["wakeTime"])}
        live.redis.zadd(live.keys.of_tx(tx_id, "sleepingZ"), wake)


def test_news_from_every_master_reaches_those_who_wait(datp: Kit) -> None:
    """A message published on one master is heard on all of them."""

    @datp.step("t/slow")
    def slow(ctx: Any, data: dict[str, Any]) -> None:
        """Nothing."""

    datp.use(Pipeline("news").step("t/slow").build())
    live = datp.connections.live
    with live.redis.pubsub() as subscription:  # type: ignore[no-untyped-call]
        subscription.subscribe(live.keys.notify)
        assert subscription.get_message(timeout=5)["type"] == "subscribe"
        tx_ids = {datp.submit("news", {}) for _ in range(MANY)}
        heard: set[str] = set()
        while heard != tx_ids:
            message = subscription.get_message(timeout=5)
            assert message is not None, f"{len(tx_ids - heard)} were not heard of"
            heard.add(str(message["data"]).split(":")[1])


def test_what_operators_see_is_counted_over_all_masters(datp: Kit, world: World) -> None:
    for _ in range(MANY):
        datp.submit("quick", {})
    datp.advance(seconds=10)
    datp.run_job("meter")
    totals = Metrics(datp.connections.redis, datp.connections.live.keys).totals()
    assert sum(number for label, number in totals.items() if label.what == "success") == MANY
