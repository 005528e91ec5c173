"""Metrics in slots: what the scripts count arrives in every series, once, in its slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datp_tasks import Call, Fail, Pipeline, Sleep
from datp_tasks.live.cluster_redis import servers_of
from datp_tasks.live.metrics import RESOLUTIONS, Label, Metrics, summed, take_counts
from datp_tasks.live.scripts import call, script
from datp_tasks.observe.prometheus import families
from datp_tasks.testing.kit import Kit

Data = dict[str, Any]


def declare(kit: Kit) -> None:
    @kit.step("t/do")
    def do(ctx: Any, data: Data) -> Any:
        if data.get("fail"):
            raise Fail("as asked")
        return Sleep(seconds=30) if data.get("sleep") and not ctx.sleeps else None

    kit.use(Pipeline("p").step("t/do").build())
    kit.use(Pipeline("q").step("t/do").build())


def metrics_of(kit: Kit) -> Metrics:
    return Metrics(kit.connections.redis, kit.connections.live.keys)


@contextmanager
def commands(kit: Kit) -> Iterator[Counter[str]]:
    """How often Redis executes each command meanwhile."""

    def calls() -> Counter[str]:
        found: Counter[str] = Counter()
        for server in servers_of(kit.connections.redis):
            for name, stats in server.info("commandstats").items():
                found[name.removeprefix("cmdstat_")] += int(stats["calls"])
        return found

    sent: Counter[str] = Counter()
    before = calls()
    yield sent
    sent.update(calls() - before)


def now_s(kit: Kit) -> int:
    return kit.connections.live.server_now_ms() // 1_000


def test_what_is_queued_started_and_ended_is_counted_by_pipeline_group_and_owner(
    datp: Kit,
) -> None:
    declare(datp)
    for _ in range(3):
        datp.submit("p", {}, owner="ann")
    datp.submit("q", {"fail": True}, owner="bob")
    datp.submit("q", {"sleep": True}, owner="bob")
    datp.clock.advance(seconds=5)
    datp.run_job("meter")
    datp.clock.advance(seconds=5)
    datp.run_job("meter")
    totals = metrics_of(datp).totals()
    assert totals == {
        Label("pipeline", "master", "p", "ann"): 3,
        Label("pipeline", "master", "q", "bob"): 2,
        Label("queued", "master", "p", "ann"): 3,
        Label("started", "master", "p", "ann"): 3,
        Label("success", "master", "p", "ann"): 3,
        Label("queued", "master", "q", "bob"): 2,
        Label("started", "master", "q", "bob"): 2,
        Label("failed", "master", "q", "bob"): 1,
    }


def test_every_resolution_has_the_same_sum_and_the_right_slot(datp: Kit) -> None:
    declare(datp)
    datp.submit("p", {})
    datp.clock.advance(seconds=100)
    datp.submit("p", {})
    datp.clock.advance(seconds=5)
    datp.run_job("meter")
    kept = [(5, 5 * 60), (100, 2 * 3_600), (1_000, 24 * 3_600)]
    assert [(each.slot_s, each.kept_s) for each in RESOLUTIONS.values()] == kept
    for number, resolution in enumerate(RESOLUTIONS.values(), start=1):
        name = datp.connections.live.keys.outside(f"metric{number}H:*")
        ttls_s = [datp.connections.redis.ttl(key) for key in datp.connections.redis.keys(name)]
        longest_s = resolution.kept_s + resolution.slot_s
        assert ttls_s and all(resolution.kept_s - 60 < ttl_s <= longest_s for ttl_s in ttls_s)
        series = metrics_of(datp).series(resolution, now_s(datp))
        assert len(series) == resolution.kept_s // resolution.slot_s
        ended = {slot.start_s: summed(slot, by=["what"]).get(("success",), 0) for slot in series}
        assert sum(ended.values()) == 2
        slots = [start for start, number in ended.items() if number]
        assert all(start % resolution.slot_s == 0 for start in slots)
        assert len(slots) == (1 if resolution.slot_s == 1_000 else 2)


def test_a_slot_that_is_not_over_is_left_alone_and_each_count_is_taken_once(datp: Kit) -> None:
    declare(datp)
    datp.submit("p", {})
    assert take_counts(datp.connections.live) == {}
    datp.clock.advance(seconds=5)
    assert sum(take_counts(datp.connections.live).values()) == 3
    assert take_counts(datp.connections.live) == {}


def fill(kit: Kit, slots: int, labels: int) -> int:
    """As while beat was down for long; how many fields, all in one shard."""
    live = kit.connections.live
    start_s = now_s(kit) // 5 * 5
    names: dict[Any, Any] = {
        f"{start_s + 5 * slot}|queued|master|p{label}|o": 1
        for slot in range(slots)
        for label in range(labels)
    }
    live.redis.hset(live.keys.in_shard("03", "countsH"), mapping=names)
    kit.clock.advance(seconds=5 * slots)
    return len(names)


def test_one_call_takes_a_bounded_number_and_the_next_ones_the_rest(datp: Kit) -> None:
    fields = fill(datp, slots=500, labels=10)
    live = datp.connections.live
    key = live.keys.in_shard("03", "countsH")
    cursor, names = "0", []
    while True:
        order = call(script("take_counts"), (key,), (live.given_now(), cursor, 100))
        _, flat, cursor = live.run([order])[0]
        assert len(flat) / 2 <= 300
        names += flat[::2]
        if cursor == "0":
            break
    assert len(names) == len(set(names)) == fields
    assert live.redis.exists(key) == 0


def test_what_was_counted_while_beat_was_down_is_added_in_one_run(datp: Kit) -> None:
    fields = fill(datp, slots=2_000, labels=5)
    with commands(datp) as sent:
        assert datp.run_job("meter").counted == fields
    assert sum(metrics_of(datp).totals().values()) == fields
    coarse = metrics_of(datp).series(RESOLUTIONS["coarse"], now_s(datp))
    assert sum(sum(slot.counts.values()) for slot in coarse) == fields
    fine = metrics_of(datp).series(RESOLUTIONS["fine"], now_s(datp))
    assert sum(sum(slot.counts.values()) for slot in fine) == 5 * len(fine[:-1])
    # Added up before they are sent; slots that would expire at once are not sent at all.
    assert sent["hincrby"] < fields / 4


def test_workers_take_what_was_counted_while_beat_is_silent(datp: Kit) -> None:
    declare(datp)
    datp.process.beat_watch.seen()
    datp.submit("p", {})
    datp.clock.advance(seconds=datp.settings.beat_silent_s + 5)
    assert datp.process.beat_watch.look()
    assert sum(metrics_of(datp).totals().values()) == 3
    assert take_counts(datp.connections.live) == {}


def test_a_refused_claim_and_a_repeated_ending_count_nothing(datp: Kit) -> None:
    declare(datp)
    tx_id = datp.submit("p", {})
    live = datp.connections.live
    live.claim_many([(tx_id, 1)], "somebody")
    live.follow_sql([(tx_id, "success")])
    datp.clock.advance(seconds=5)
    assert sum(take_counts(live).values()) == 3


def test_gauges_tell_lengths_and_lags(datp: Kit) -> None:
    declare(datp)
    datp.submit("p", {"sleep": True})
    datp.clock.advance(seconds=50)
    datp.run_job("meter")
    gauges = metrics_of(datp).gauges()
    assert gauges["list|sleepingZ"] == 1
    assert gauges["lag|wake"] == 20
    assert gauges["lag|webhooks"] == gauges["lag|timeouts"] == 0
    assert gauges["journal"] == 2
    assert gauges["queue|master"] == 0
    last = metrics_of(datp).series(RESOLUTIONS["fine"], now_s(datp))[-1]
    assert last.gauges["lag|wake"] == 20


def test_the_lag_of_the_queue_is_that_of_one_that_was_rung_again_in_vain(datp: Kit) -> None:
    declare(datp)
    datp.lose_bells()
    datp.submit("p", {})
    for _ in range(3):
        datp.clock.advance(seconds=datp.settings.ring_again_after_ms / 1_000)
        datp.run_job("reconciler")
    datp.run_job("meter")
    lag_s = 3 * datp.settings.ring_again_after_ms / 1_000
    assert metrics_of(datp).gauges()["lag|queue"] == lag_s


def test_time_spent_in_steps_is_added_up_by_place(datp: Kit) -> None:
    declare(datp)
    for _ in range(4):
        datp.submit("p", {})
    datp.connections.bells.costs.publish()
    passed, spent_s = metrics_of(datp).step_times()["p/0"]
    assert passed == 4
    assert 0 <= spent_s < 5


def test_each_transaction_of_a_vector_is_counted_under_its_pipeline(datp: Kit) -> None:
    declare(datp)
    datp.submit_together("p", [{}, {}, {}], owner="ann")
    datp.clock.advance(seconds=5)
    datp.run_job("meter")
    datp.clock.advance(seconds=5)
    datp.run_job("meter")
    assert metrics_of(datp).totals()[Label("pipeline", "master", "p", "ann")] == 3


def test_every_event_that_queues_again_and_every_pipeline_is_counted_under_its_name(
    datp: Kit,
) -> None:
    @datp.step("t/wait")
    def wait(ctx: Any, data: dict[str, Any]) -> Any:
        return None if ctx.switch("go") else Sleep(switch="go", seconds=86_400)

    @datp.step("t/nap")
    def nap(ctx: Any, data: dict[str, Any]) -> Any:
        return Sleep(seconds=1) if ctx.sleeps == 0 else None

    @datp.step("t/call")
    def call(ctx: Any, data: dict[str, Any]) -> Call:
        return Call("child")

    datp.use(
        Pipeline("child", group="kyc", startable=False).step("t/nap").build(),
        Pipeline("parent").step("t/call").step("t/wait").build(),
    )
    tx_id = datp.submit("parent", {}, owner="ann")
    datp.advance(seconds=2)
    datp.set_switch(tx_id, "go", True)
    datp.clock.advance(seconds=5)
    datp.run_job("meter")
    datp.clock.advance(seconds=5)
    datp.run_job("meter")
    totals = metrics_of(datp).totals()
    assert {
        (each.what, each.group, each.pipeline): number
        for each, number in totals.items()
        if each.what in ("queued", "requeued", "pipeline")
    } == {
        ("queued", "master", "parent"): 1,
        ("pipeline", "master", "parent"): 1,
        ("pipeline", "master", "child"): 1,
        # Into the child, and awake again in it.
        ("requeued", "kyc", "child"): 2,
        # Back in its parent, and by the switch.
        ("requeued", "master", "parent"): 2,
    }
    shown = {family.name for family in families(metrics_of(datp), [])}
    assert {"datp_transactions_requeued", "datp_pipelines_started"} <= shown


def test_one_that_is_taken_from_a_lost_worker_is_counted_and_rung_again_is_not(datp: Kit) -> None:
    declare(datp)
    datp.crash_at("hop.after_claim")
    datp.submit("p", {}, owner="ann")
    datp.recover()
    datp.lose_bells()
    datp.submit("p", {}, owner="ann")
    for _ in range(3):
        datp.advance(seconds=60)
    totals = metrics_of(datp).totals()
    assert totals[Label("requeued", "master", "p", "ann")] == 1
    assert totals[Label("queued", "master", "p", "ann")] == 2
