"""A machine whose clock is wrong by an hour decides nothing by it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from types import SimpleNamespace
from typing import Any

import pytest

from datp_tasks.clock import ServerClock
from datp_tasks.model.status import Status
from datp_tasks.runtime import container as connections_module
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World
from tests.support.eventually import eventually


@pytest.fixture
def world(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """No virtual clock: whatever has to do with time asks a server."""
    monkeypatch.setattr("datp_tasks.testing.kit.VirtualClock", ServerClock)
    kit = Kit(datp_servers, delay_before_archiving_s=0, node_beat_ms=50, node_stale_ms=300)
    yield World(kit)
    kit.close()


@pytest.fixture(params=[-3_600.0, 3_600.0], ids=["an-hour-behind", "an-hour-ahead"])
def wrong_by_s(request: pytest.FixtureRequest) -> float:
    found: float = request.param
    return found


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch, wrong_by_s: float) -> None:
    """Every module of ours that looks at the clock of its machine sees the wrong time."""
    right = time.time

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=wrong_by_s)

    import sys

    fake = SimpleNamespace(**{name: getattr(time, name) for name in dir(time)})
    fake.time = lambda: right() + wrong_by_s
    fake.time_ns = lambda: int((right() + wrong_by_s) * 1e9)
    for name, module in list(sys.modules.items()):
        if name.startswith("datp_tasks"):
            if getattr(module, "time", None) is time:
                monkeypatch.setattr(module, "time", fake)
            if getattr(module, "datetime", None) is datetime:
                monkeypatch.setattr(module, "datetime", Wrong)
    assert connections_module is not None


@pytest.mark.usefixtures("wrong")
def test_sleeps_expiries_and_roles_follow_the_servers(world: World, tmp_path: Any) -> None:
    kit = world.kit
    short = kit.submit("rest", {"seconds": 0.3})
    long = kit.submit("rest", {})
    expires = kit.submit("rest", {}, expires_in_s=0.5)
    in_time = kit.submit("wait", {}, expires_in_s=600)
    assert world.status(short) == "sleeping"
    live = kit.connections.live
    seconds, _ = kit.connections.redis.time()
    assert abs(live.server_now_ms() / 1_000 - int(seconds)) < 5
    assert abs(int(world.fields(long)["wakeTime"]) / 1_000 - int(seconds) - 3_600) < 5
    world.archive()
    assert (world.ttl_s(long) or 0) > 0

    def passed() -> bool:
        kit.run_job("sleeper")
        kit.run_job("timeout_handler")
        return kit.status(short).is_final and kit.status(expires).is_final

    eventually(passed)
    assert kit.status(short).status is Status.SUCCESS
    assert kit.status(expires).status is Status.EXPIRED
    assert world.status(long) == "sleeping"
    kit.client.set_switch(in_time, "go", 1)
    assert kit.status(in_time).status is Status.SUCCESS
    kit.run_job("reconciler")
    assert kit.run_job("reaper").taken == 0
    assert world.faults() == {}


@pytest.mark.usefixtures("wrong")
def test_a_dead_node_is_noticed_in_the_servers_time_and_a_loss_is_repaired(world: World) -> None:
    kit = world.kit
    dead = world.crashed("hop", "hop.after_step")
    world.archive()
    asleep = kit.submit("wait", {})
    world.archive()
    kit.run_job("reaper")
    assert world.status(dead) == "running"

    def taken() -> bool:
        kit.process.heartbeat.beat_once()
        kit.run_job("reaper")
        return kit.status(dead).is_final

    eventually(taken)
    world.archive()
    world.wipe()
    kit.run_job("reconciler")
    assert kit.client.set_switch(asleep, "go", 1)
    assert kit.status(asleep).status is Status.SUCCESS
    rows = world.sql("SELECT abs(extract(epoch FROM recorded_at - now())) AS s FROM tx_journal")
    assert max(row.s for row in rows) < 60
    assert world.faults() == {}
