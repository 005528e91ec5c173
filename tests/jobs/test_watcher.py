"""The watcher: each trouble is one alert, raised once, and over when it is over."""

from __future__ import annotations

import pytest

from datp_tasks import Pipeline
from datp_tasks.jobs import watcher
from datp_tasks.live.nodes import NodeRegister
from datp_tasks.model.actor import Actor
from datp_tasks.observe.beat_watch import BEAT_SILENT, BeatWatch
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "QUEUED_MAX", 3)
    monkeypatch.setattr(watcher, "BELLS_MAX", 10)


@pytest.fixture
def kit(datp: Kit) -> Kit:
    datp.use(Pipeline("slow", group="kyc").step("util/fixed-reply", params={"output": {}}).build())
    return datp


@pytest.fixture
def register(kit: Kit) -> NodeRegister:
    settings = kit.settings
    return NodeRegister(
        kit.connections.live, stale_ms=settings.node_stale_ms, grace_ms=settings.node_grace_ms
    )


def join(kit: Kit, register: NodeRegister, node: str, group: str = "kyc") -> None:
    register.write(node, [group], {"joinedMs": kit.connections.live.server_now_ms()})


def alerts_of(kit: Kit) -> set[tuple[str, str]]:
    found = Alerts(kit.connections.engine, kit.clock).open_alerts()
    return {(each.kind, each.subject) for each in found}


def look(kit: Kit, *, after_s: float = 5.0, **waiting: int) -> watcher.Result:
    kit.clock.advance(seconds=after_s)
    result: watcher.Result = kit.run_job("watcher", backlog=lambda group: waiting.get(group, 0))
    return result


def test_a_quiet_system_raises_nothing(kit: Kit, register: NodeRegister) -> None:
    join(kit, register, "n1")
    assert look(kit, after_s=1) == watcher.Result(raised=0, cleared=0)
    assert look(kit, after_s=1) == watcher.Result(raised=0, cleared=0)
    assert alerts_of(kit) == set()


def test_a_group_with_work_and_no_worker_raises_once_until_a_worker_comes(
    kit: Kit, register: NodeRegister
) -> None:
    kit.lose_bells()
    kit.submit("slow", {})
    assert look(kit, after_s=1).raised == 0
    assert look(kit) == watcher.Result(raised=1, cleared=0)
    assert look(kit) == watcher.Result(raised=0, cleared=0)
    assert alerts_of(kit) == {(watcher.NO_WORKER, "kyc")}
    join(kit, register, "n1")
    assert look(kit, after_s=1) == watcher.Result(raised=0, cleared=1)


def test_messages_that_no_worker_takes_count_as_work(kit: Kit, register: NodeRegister) -> None:
    look(kit, kyc=1)
    assert alerts_of(kit) == {(watcher.NO_WORKER, "kyc")}
    # Nobody has to serve a ledger as long as no service is known.
    look(kit, ledger=1)
    assert alerts_of(kit) == set()


def test_a_stopped_group_with_a_worker_is_no_trouble(kit: Kit, register: NodeRegister) -> None:
    kit.connections.groups.set("kyc", {"concurrency": 0}, actor=Actor(name="test"))
    join(kit, register, "n1")
    assert look(kit, after_s=1, kyc=5).raised == 0


def test_a_node_that_died_is_missed_until_another_took_its_place(
    kit: Kit, register: NodeRegister
) -> None:
    join(kit, register, "n1")
    join(kit, register, "n2")
    assert look(kit, after_s=5).raised == 0
    # Silent for long enough, but noticed only now.
    assert look(kit, after_s=2).raised == 0
    assert look(kit) == watcher.Result(raised=1, cleared=0)
    assert alerts_of(kit) == {(watcher.NODE_LOST, "kyc")}
    join(kit, register, "n3")
    assert look(kit, after_s=1) == watcher.Result(raised=0, cleared=0)
    join(kit, register, "n4")
    assert look(kit, after_s=1) == watcher.Result(raised=0, cleared=1)
    assert look(kit, after_s=1) == watcher.Result(raised=0, cleared=0)


def test_a_node_that_was_replaced_before_it_was_missed_leaves_a_trace(
    kit: Kit, register: NodeRegister
) -> None:
    join(kit, register, "n1")
    kit.clock.advance(seconds=1)
    join(kit, register, "n2")
    for _ in range(4):
        kit.clock.advance(seconds=4)
        join(kit, register, "n3")
        look(kit, after_s=0)
        register.write("n2", ["kyc"], {"joinedMs": 1_800_000_001_000})
    assert alerts_of(kit) == set()
    with kit.connections.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT kind, cleared_at FROM alert").all()
    assert [(row.kind, row.cleared_at is not None) for row in rows] == [(watcher.NODE_LOST, True)]


def test_a_node_that_left_in_order_is_not_missed(kit: Kit, register: NodeRegister) -> None:
    join(kit, register, "n1")
    register.leave("n1", ["kyc"])
    for _ in range(3):
        assert look(kit, after_s=10).raised == 0


def test_an_outage_of_redis_ends_no_node(kit: Kit, register: NodeRegister) -> None:
    join(kit, register, "n1")
    # Back after a minute: everybody looks dead at first sight, and beats a moment later.
    assert look(kit, after_s=60).raised == 0
    join(kit, register, "n1")
    assert look(kit, after_s=1).raised == 0
    assert look(kit, after_s=4).raised == 0
    assert alerts_of(kit) == set()


def test_a_long_queue_raises_above_its_limit_and_clears_below_half_of_it(
    kit: Kit, register: NodeRegister
) -> None:
    join(kit, register, "n1")
    assert look(kit, after_s=1, kyc=10).raised == 0
    assert look(kit, after_s=1, kyc=11).raised == 1
    assert look(kit, after_s=1, kyc=6).cleared == 0
    assert look(kit, after_s=1, kyc=5).cleared == 1
    kit.lose_bells()
    for _ in range(4):
        kit.submit("slow", {})
    look(kit, after_s=1)
    assert alerts_of(kit) == {(watcher.QUEUE_LONG, watcher.ALL_QUEUED)}


def test_beat_that_stopped_is_noticed_by_workers_and_cleared_by_the_next_job(kit: Kit) -> None:
    alerts = Alerts(kit.connections.engine, kit.clock)
    watch = BeatWatch(kit.connections.live, alerts, silent_s=15, subject="master")
    assert watch.look() is False
    kit.clock.advance(seconds=14)
    watch.seen()
    kit.clock.advance(seconds=14)
    assert watch.look() is False
    kit.clock.advance(seconds=1)
    assert watch.look() is True
    assert watch.look() is True
    assert alerts_of(kit) == {(BEAT_SILENT, "master")}
    assert look(kit).cleared == 1
    assert alerts_of(kit) == set()


def test_all_nodes_are_read_together(
    kit: Kit, register: NodeRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of nodes must not be hundreds of round trips."""
    for number in range(5):
        join(kit, register, f"n{number}")

    def one_by_one(key: str) -> None:
        raise AssertionError(f"{key} is asked for alone")

    monkeypatch.setattr(kit.connections.redis, "get", one_by_one)
    assert [node.name for node in register.nodes() if node.group == "kyc"] == [
        f"n{number}" for number in range(5)
    ]


def test_one_that_runs_for_too_long_raises_an_alert_for_its_pipeline(kit: Kit) -> None:
    seen: list[set[tuple[str, str]]] = []

    @kit.step("t/slow")
    def slow(ctx: object, data: dict[str, object]) -> None:
        for seconds in (50, 60, 500):
            look(kit, after_s=seconds)
            seen.append({each for each in alerts_of(kit) if each[0] == watcher.LONG_RUNNING})

    kit.use(
        Pipeline("quick", long_running_s=100).step("t/slow").build(),
        Pipeline("usual").step("t/slow").build(),
    )
    kit.run("quick", {})
    assert seen == [set(), {(watcher.LONG_RUNNING, "quick")}, {(watcher.LONG_RUNNING, "quick")}]
    look(kit)
    seen.clear()
    kit.run("usual", {})
    assert seen == [set(), set(), {(watcher.LONG_RUNNING, "usual")}]
    look(kit)
    assert not [each for each in alerts_of(kit) if each[0] == watcher.LONG_RUNNING]


def test_a_node_group_says_what_is_long_where_the_pipeline_says_nothing(kit: Kit) -> None:
    seen: list[set[str]] = []

    @kit.step("t/slow")
    def slow(ctx: object, data: dict[str, object]) -> None:
        for seconds in (25, 10, 100):
            look(kit, after_s=seconds)
            seen.append({each[1] for each in alerts_of(kit) if each[0] == watcher.LONG_RUNNING})

    kit.use(
        Pipeline("own", group="kyc", long_running_s=100).step("t/slow").build(),
        Pipeline("theirs", group="kyc").step("t/slow").build(),
    )
    kit.connections.groups.set("kyc", {"longRunningSeconds": 30}, actor=Actor(name="test"))
    kit.run("own", {})
    kit.run("theirs", {})
    assert seen == [set(), set(), {"own"}, set(), {"theirs"}, {"theirs"}]
    # 0: what runs there may take as long as it likes.
    kit.connections.groups.set("kyc", {"longRunningSeconds": 0}, actor=Actor(name="test"))
    seen.clear()
    kit.run("theirs", {})
    assert seen == [set(), set(), set()]


# A queue that grows.

GROWS = (watcher.QUEUE_GROWS, "kyc")


def beat_and_look(kit: Kit, register: NodeRegister, waiting: int, *, after_s: float = 10) -> bool:
    """Whether the alert is open; its workers live, and the meter has sampled as well."""
    kit.clock.advance(seconds=after_s)
    join(kit, register, "n1")
    kit.run_job("meter", backlog=lambda group: waiting if group == "kyc" else 0)
    look(kit, after_s=0, kyc=waiting)
    return GROWS in alerts_of(kit)


def test_a_queue_that_grows_raises_an_alert_that_clears_itself_when_it_shrinks(
    kit: Kit, register: NodeRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "BELLS_MAX", 100_000)
    steady = [beat_and_look(kit, register, 300) for _ in range(40)]
    assert not any(steady)
    grows = [beat_and_look(kit, register, 300 + 15 * n) for n in range(30)]
    assert grows[-1] and not any(grows[:20])
    [alert] = Alerts(kit.connections.engine, kit.clock).open_alerts(watcher.QUEUE_GROWS)
    assert "more is queued for group kyc than its workers do" in alert.summary
    # It no longer doubles, but is not over before it shrinks.
    assert all(beat_and_look(kit, register, 560) for _ in range(3))
    assert not beat_and_look(kit, register, 250)


def test_a_short_queue_that_doubles_is_nothing_and_neither_is_a_new_one(
    kit: Kit, register: NodeRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "BELLS_MAX", 100_000)
    assert not any(beat_and_look(kit, register, 10 + n) for n in range(60))
    # Nothing is known yet of what was before.
    kit.connections.redis.delete(*kit.connections.redis.keys(f"{kit.settings.key_prefix}*metric*"))
    assert not beat_and_look(kit, register, 5_000)


def test_one_that_waits_for_too_long_raises_an_alert_for_its_group(
    kit: Kit, register: NodeRegister
) -> None:
    kit.lose_bells()
    tx_id = kit.submit("slow", {})
    assert not beat_and_look(kit, register, 1, after_s=100)
    # Ringing again does not make it young.
    kit.run_job("reconciler")
    assert beat_and_look(kit, register, 1, after_s=30)
    assert kit.connections.live.queued_since([tx_id])[0] is not None
    # Between half of the limit and the limit it is not over: it must not flicker.
    kit.lose_bells(False)
    kit.ring_together([tx_id])
    kit.lose_bells()
    kit.submit("slow", {})
    assert beat_and_look(kit, register, 1, after_s=61)
    kit.connections.groups.set("kyc", {"queueAgeSeconds": 600}, actor=Actor(name="test"))
    assert not beat_and_look(kit, register, 1)


def test_a_group_that_was_stopped_on_purpose_may_queue(kit: Kit, register: NodeRegister) -> None:
    kit.lose_bells()
    kit.submit("slow", {})
    kit.connections.groups.set("kyc", {"concurrency": 0}, actor=Actor(name="test"))
    assert not beat_and_look(kit, register, 1, after_s=1_000)
