"""What is no loss is not taken for one, and a second loss is not taken for a part of the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from datp_tasks.jobs import rebuild, reconciler
from datp_tasks.jobs.rebuild import REDIS_LOSS, Rebuild
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.invariants import check_all
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.journal import Journal
from datp_tasks.runtime.jobs import rebuild_tables
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World


@pytest.fixture
def archives_between_reads(datp: Kit, sound: World) -> Iterator[World]:
    """Whenever marks were read, the archiver moves them."""
    tx_id = datp.submit("wait", {})
    sound.archive()
    datp.run_job("reconciler")
    busy = False
    number = 0

    def move() -> None:
        nonlocal busy, number
        if busy:
            return
        busy, number = True, number + 1
        datp.client.set_switch(tx_id, "other", number)
        datp.run_job("archiver")
        busy = False

    with pytest.MonkeyPatch.context() as patch:
        for owner in (ArchiveFeed, Journal):
            read = owner.marks

            def moving(self: Any, read: Any = read) -> Any:
                found = read(self)
                move()
                return found

            patch.setattr(owner, "marks", moving)
        yield sound
    assert number > 1


def rebuild_once(kit: Kit) -> int:
    """The first part of the reconciler alone."""
    return Rebuild(
        kit.connections.live,
        rebuild_tables(kit.connections),
        kit.connections.recovery.rebuilder,
        run_s=reconciler.REBUILD_RUN_S,
        batch_max=reconciler.BATCH_MAX,
    ).run()


def losses(world: World) -> list[Any]:
    return world.sql("SELECT * FROM alert WHERE kind = :kind", kind=REDIS_LOSS)


def test_an_archiver_at_work_is_not_taken_for_a_loss(archives_between_reads: World) -> None:
    world = archives_between_reads
    for _ in range(3):
        assert world.kit.run_job("reconciler").rebuilt == 0
    assert losses(world) == []
    assert world.kit.operator.doctor().lost_shards == []


@pytest.fixture
def half_repaired(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[World, list[str]]]:
    """Redis lost everything, and a first run had time for two pages of the repair."""
    monkeypatch.setattr(reconciler, "BATCH_MAX", 3)
    kit = Kit(datp_servers)
    world = World(kit)
    tx_ids = []
    for _ in range(20):
        tx_ids.append(kit.submit("wait", {}))
        kit.clock.advance(seconds=1)
    world.archive()
    world.wipe()
    with monkeypatch.context() as patch:
        patch.setattr(rebuild, "monotonic", iter([0.0, 1.0, 2.0, 9e9]).__next__)
        assert rebuild_once(kit) == 6
    assert kit.operator.doctor().lost_shards
    yield world, tx_ids
    assert [tx for tx in tx_ids if world.status(tx) != "sleeping"] == []
    assert not kit.operator.doctor().lost_shards
    assert Alerts(kit.connections.engine, kit.clock).open_alerts(REDIS_LOSS) == []
    assert world.faults() == {}
    assert check_all(kit.connections.live) == []
    kit.close()


def test_a_repair_goes_on_where_the_run_before_ended(
    half_repaired: tuple[World, list[str]],
) -> None:
    world, tx_ids = half_repaired
    with statements(world) as asked:
        assert rebuild_once(world.kit) == len(tx_ids) - 6
    # Pages of three: the rest, and one that shows that there is no more.
    assert sum("BETWEEN" in each for each in asked) == 5


def test_a_loss_that_comes_while_another_is_repaired_is_repaired_from_the_beginning(
    half_repaired: tuple[World, list[str]],
) -> None:
    """Some servers of a cluster fail; how far the repair had come was on another one."""
    world, tx_ids = half_repaired
    redis, cursor = (
        world.kit.connections.redis,
        world.kit.connections.live.keys.outside("rebuiltTo"),
    )
    kept = redis.get(cursor)
    assert kept
    world.wipe()
    redis.set(cursor, kept)
    assert rebuild_once(world.kit) == len(tx_ids)


def test_a_restart_of_redis_while_a_loss_is_repaired_begins_it_again(
    half_repaired: tuple[World, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server comes back without its last second: some of what had been restored is gone."""
    world, tx_ids = half_repaired
    keys = world.kit.connections.live.keys
    world.kit.connections.redis.delete(keys.state(tx_ids[0]))
    world.kit.connections.redis.zrem(keys.of_tx(tx_ids[0], "sleepingZ"), tx_ids[0])
    run_id = ArchiveFeed.run_id
    monkeypatch.setattr(ArchiveFeed, "run_id", lambda self: f"another {run_id(self)}")
    assert rebuild_once(world.kit) == len(tx_ids) - 5


@contextmanager
def statements(world: World) -> Iterator[list[str]]:
    """What PostgreSQL is asked meanwhile."""
    asked: list[str] = []

    def hear(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        asked.append(statement)

    event.listen(world.kit.connections.engine, "before_cursor_execute", hear)
    yield asked
    event.remove(world.kit.connections.engine, "before_cursor_execute", hear)
