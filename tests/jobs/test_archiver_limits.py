"""The archiver: batches are bounded by bytes, too, and what is refused does not block the rest."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Connection

from datp_tasks import failpoints
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.jobs import archiver
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.model import payload
from datp_tasks.model.payload import OUTPUT_BYTES_MAX
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.archiver_role import ArchiverRole, guard
from datp_tasks.record.states import StateCopy, States
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World

MakeWorld = Callable[..., World]
#: Bytes of each state and of each entry that brings an output.
LARGE = 50_000


@pytest.fixture
def make_world(datp_servers: Servers) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(**settings: Any) -> World:
        made.append(World(Kit(datp_servers, **settings)))
        return made[-1]

    yield make
    for world in made:
        assert world.faults() == {}
        world.kit.close()


def spy_on_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that Redis sends in each round trip."""
    live = world.kit.connections.live
    send, sizes = live.send, []

    def weighed(commands: Any) -> Any:
        answers = send(commands)
        sizes.append(len(repr(answers)))
        return answers

    monkeypatch.setattr(live, "send", weighed)
    return sizes


def test_entries_and_states_are_read_in_parts_of_a_bounded_size(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_max = 5 * LARGE
    monkeypatch.setattr(archiver, "BYTES_MAX", bytes_max)
    monkeypatch.setattr(payload, "OUTPUT_BYTES_MAX", LARGE + 1_000)
    world = make_world(shards=2)
    tx_ids = [world.kit.submit("rest", {"blob": "x" * LARGE}) for _ in range(40)]
    sizes = spy_on_bytes(world, monkeypatch)
    result = world.archive()
    assert (result.entries, result.copied) == (120, 40)
    assert world.backlog() == 0
    assert world.due() == set()
    assert max(sizes) < 3 * bytes_max
    assert all(world.archived_version(tx) for tx in tx_ids)


def test_a_batch_in_memory_is_bounded_by_bytes_and_the_rest_follows(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "BYTES_MAX", 4 * LARGE)
    monkeypatch.setattr(payload, "OUTPUT_BYTES_MAX", LARGE + 1_000)
    world = make_world(shards=1)
    for _ in range(20):
        world.kit.submit("rest", {"blob": "x" * LARGE})
    drained = ArchiveFeed(world.kit.connections.live).read_journal(
        entries_max=5_000, bytes_max=4 * LARGE, entry_bytes_max=LARGE
    )
    assert 4 <= drained.count < 30
    assert drained.behind == {"00"}
    found, is_full = world.archiver().read_states()
    assert 1 <= len(found) < 10
    assert is_full


def test_many_small_states_are_read_in_parts_and_saved_together(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "PART_MAX", 3)
    world = make_world(shards=1)
    tx_ids = [world.kit.submit("wait", {}) for _ in range(10)]
    parts: list[int] = []
    read = ArchiveFeed.copies

    def noted(feed: ArchiveFeed, wanted: Sequence[str]) -> Any:
        parts.append(len(wanted))
        return read(feed, wanted)

    monkeypatch.setattr(ArchiveFeed, "copies", noted)
    monkeypatch.setattr(archiver, "BYTES_MAX", archiver.OUTPUTS_IN_A_STATE * OUTPUT_BYTES_MAX)
    saved: list[int] = []
    save = States.save

    def noted_save(states: States, role: ArchiverRole, copies: Sequence[StateCopy]) -> None:
        saved.append(len(copies))
        save(states, role, copies)

    monkeypatch.setattr(States, "save", noted_save)
    world.archive()
    # The last reading finds nothing left.
    assert (parts, saved) == ([1, 3, 3, 3], [10])
    assert all(world.archived_version(tx) for tx in tx_ids)


def test_an_entry_that_is_larger_than_the_limit_goes_alone(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "BYTES_MAX", 65_536)
    world = make_world(shards=1)
    tx_id = world.kit.submit("rest", {"blob": "x" * 200_000})
    assert world.archive().entries == 3
    assert world.archived_version(tx_id)


def test_the_journal_is_drained_once_for_each_reading_of_states(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first reading, and once after each: what happens meanwhile shares a row."""
    world = make_world(shards=1, archiver_batch_max=5)
    for _ in range(20):
        world.kit.submit("wait", {})
    told: list[str] = []
    for name in ("drain", "read_states"):
        method = getattr(archiver.Archiver, name)

        def noted(self: archiver.Archiver, name: str = name, method: Any = method) -> Any:
            told.append(name)
            return method(self)

        monkeypatch.setattr(archiver.Archiver, name, noted)
    assert world.archiver().work().copied == 20
    assert told == ["drain", *["read_states", "drain"] * 4, "read_states"]


# What PostgreSQL refuses.


@pytest.fixture
def refuse(make_world: MakeWorld) -> Iterator[Callable[[World, str], None]]:
    """Let PostgreSQL refuse what a condition says, for as long as the test lasts."""
    worlds: list[World] = []

    def add(world: World, condition: str) -> None:
        worlds.append(world)
        world.sql(f"ALTER TABLE tx_journal ADD CONSTRAINT refused CHECK ({condition}) NOT VALID")

    yield add
    for world in worlds:
        world.sql("ALTER TABLE tx_journal DROP CONSTRAINT IF EXISTS refused")
        world.archive()


def stuck(world: World) -> list[str]:
    alerts = Alerts(world.kit.connections.engine, world.kit.clock)
    return [each.subject for each in alerts.open_alerts(archiver.JOURNAL_STUCK)]


def test_an_entry_that_is_refused_blocks_nothing_but_its_own_shard(
    make_world: MakeWorld, refuse: Callable[[World, str], None]
) -> None:
    world = make_world(shards=4)
    tx_ids = [world.kit.submit("wait", {}) for _ in range(16)]
    poison = tx_ids[8]
    shard = poison[1:3]
    before = [tx for tx in tx_ids[:8] if tx[1:3] == shard]
    refuse(world, f"tx_id <> '{poison}'")
    for _ in range(2):
        world.archive()
        assert stuck(world) == [f"shard {shard}"]
    others = [tx for tx in tx_ids if tx[1:3] != shard]
    assert all(world.journal(tx) and world.archived_version(tx) for tx in others)
    # What was before it went through; no copy is newer than what the journal leads to.
    assert all(world.journal(tx) for tx in before)
    assert not world.archived_version(poison)
    world.sql("ALTER TABLE tx_journal DROP CONSTRAINT refused")
    world.archive()
    assert stuck(world) == []
    assert world.backlog() == 0
    assert all(world.journal(tx) and world.archived_version(tx) for tx in tx_ids)


def test_an_entry_that_cannot_be_read_blocks_nothing_but_its_shard(make_world: MakeWorld) -> None:
    world = make_world(shards=2)
    live = world.kit.connections.live
    tx_ids = [world.kit.submit("wait", {}) for _ in range(8)]
    key = live.keys.in_shard("01", "journalX")
    [[broken]] = [live.send([("XADD", key, "*", tx_ids[0], "no entry")])]
    after = [world.kit.submit("wait", {}) for _ in range(8)]
    for _ in range(2):
        world.archive()
        assert stuck(world) == ["shard 01"]
    assert all(world.journal(tx) for tx in (*tx_ids, *after) if tx[1:3] == "00")
    assert all(world.journal(tx) for tx in tx_ids)
    live.send([("XDEL", key, broken)])
    world.archive()
    assert stuck(world) == []
    assert all(world.journal(tx) for tx in after)


def test_a_batch_that_is_too_much_for_postgresql_goes_in_parts(make_world: MakeWorld) -> None:
    """As a statement would that takes longer than its time limit."""
    world = make_world(shards=2, sql_statement_timeout_s=0.25)
    tx_ids = [world.kit.submit("wait", {}) for _ in range(8)]
    world.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$"
    )
    world.sql(
        "CREATE TRIGGER slow BEFORE INSERT ON tx_journal FOR EACH ROW EXECUTE FUNCTION slow()"
    )
    try:
        for _ in range(10):
            world.archive()
    finally:
        world.sql("DROP TRIGGER slow ON tx_journal")
        world.sql("DROP FUNCTION slow")
    assert world.backlog() == 0
    assert all(world.journal(tx) for tx in tx_ids)
    assert stuck(world) == []


def test_a_vector_with_a_refused_entry_blocks_nothing_but_its_own_shard(
    make_world: MakeWorld, refuse: Callable[[World, str], None]
) -> None:
    """The entries of a vector are one entry of the stream, which cannot be read in parts."""
    world = make_world(shards=1)
    tx_ids = world.kit.submit_together("wait", [{}] * 4)
    refuse(world, f"tx_id <> '{tx_ids[2]}'")
    world.archive()
    assert stuck(world) == ["shard 00"]
    world.sql("ALTER TABLE tx_journal DROP CONSTRAINT refused")
    world.archive()
    assert stuck(world) == []
    assert all(world.journal(tx) and world.archived_version(tx) for tx in tx_ids)


def test_an_archiver_that_finds_another_one_writing_leaves_without_an_alert(
    make_world: MakeWorld,
) -> None:
    world = make_world(shards=2, sql_statement_timeout_s=0.25)
    tx_ids = [world.kit.submit("wait", {}) for _ in range(4)]
    engine = world.kit.connections.engine
    with engine.begin() as connection:
        guard(connection, ArchiverRole("another", 0))
        began_s = time.monotonic()
        assert world.archive().entries == 0
        assert time.monotonic() - began_s < 1
    assert stuck(world) == []
    world.archive()
    assert all(world.journal(tx) for tx in tx_ids)


def test_a_state_that_is_refused_holds_up_no_other(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    tx_ids = [world.kit.submit("wait", {}) for _ in range(7)]
    world.sql(f"ALTER TABLE tx_state ADD CONSTRAINT refused CHECK (tx_id <> '{tx_ids[3]}')")
    try:
        assert world.archive().copied == 6
    finally:
        world.sql("ALTER TABLE tx_state DROP CONSTRAINT refused")
    assert [tx for tx in tx_ids if not world.archived_version(tx)] == [tx_ids[3]]
    assert tx_ids[3] in world.due()
    [told] = [each for each in caplog.records if each.name == "datp.archiver"]
    assert tx_ids[3] in told.getMessage()
    # The lines after the first quote what the row holds.
    assert "Failing row" not in caplog.text
    assert world.archive().copied == 1
    assert world.archived_version(tx_ids[3])


def test_states_that_take_too_long_are_saved_in_parts(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    tx_ids = [world.kit.submit("wait", {}) for _ in range(7)]
    copy_in = States._copy_in

    def slow(
        states: States, connection: Connection, copies: Sequence[StateCopy], now: datetime
    ) -> None:
        if len(copies) > 2:
            connection.exec_driver_sql("SET LOCAL statement_timeout = '10ms'")
            connection.exec_driver_sql("SELECT pg_sleep(5)")
        copy_in(states, connection, copies, now)

    monkeypatch.setattr(States, "_copy_in", slow)
    assert world.archive().copied == 7
    assert all(world.archived_version(tx) for tx in tx_ids)


# Python's collector.


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("breaks", [False, True])
def test_the_collector_is_paused_for_a_run_and_then_as_it_was(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, is_on: bool, breaks: bool
) -> None:
    world = make_world()
    was_on: list[bool] = []

    def work(run: archiver.Archiver) -> archiver.Result:
        was_on.append(gc.isenabled())
        if breaks:
            raise SimulatedCrash("archiver")
        return run.result

    monkeypatch.setattr(archiver.Archiver, "work", work)
    try:
        (gc.enable if is_on else gc.disable)()
        with pytest.raises(SimulatedCrash) if breaks else nullcontext():
            world.archive()
        assert (was_on, gc.isenabled()) == ([False], is_on)
    finally:
        gc.enable()


# A copy must not be newer than the journal that leads to it.


def test_no_copy_is_saved_that_the_journal_does_not_lead_to_yet(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More happens between two readings than one reading takes, and then Redis is lost."""
    monkeypatch.setattr(archiver, "ENTRIES_MAX", 16)
    world = make_world()
    tx_id = world.kit.submit("wait", {})
    reads = 0
    read = archiver.Archiver.read_states

    def busy(self: archiver.Archiver) -> Any:
        nonlocal reads
        reads += 1
        if reads == 1:
            for number in range(30):
                world.kit.client.set_switch(tx_id, "other", number)
        return read(self)

    def wipe() -> None:
        world.wipe()
        raise SimulatedCrash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archiver.Archiver, "read_states", busy)
        failpoints.arm("archiver.after_states", wipe)
        with pytest.raises(SimulatedCrash):
            world.kit.run_job("archiver")
    failpoints.disarm_all()
    newest = max(row.last_version for row in world.journal(tx_id))
    assert (world.archived_version(tx_id) or 0) <= newest
    assert reads > 1
    world.kit.recover()
    assert world.status(tx_id) == "sleeping"
