"""The archiver: nothing leaves Redis before SQL has it, in that very version."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from datp_tasks import Pipeline, failpoints
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.jobs import archiver
from datp_tasks.jobs.archiver import Result
from datp_tasks.live import store
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.model import payload
from datp_tasks.record.states import States
from datp_tasks.runtime import jobs
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from datp_tasks.transactions.views import view_of_copy
from tests.support.archive_world import HOUR_S, Data, World

NOTHING = Result(entries=0, copied=0, archived=0)
POINTS = (
    "archiver.after_role",
    "archiver.before_journal",
    "archiver.after_journal",
    "archiver.before_states",
    "archiver.after_states",
)


@pytest.fixture
def world(sound: World) -> World:
    """Whatever happens here, journals lead to what is there."""
    return sound


# What is copied, and what leaves.


def test_what_has_ended_is_copied_after_a_delay_and_leaves_in_a_while(
    datp: Kit, world: World
) -> None:
    tx_id = datp.submit("quick", {})
    assert world.archive().copied == 0
    assert world.archived(tx_id) is None
    datp.clock.advance(seconds=datp.settings.delay_before_archiving_s)
    assert world.archive() == Result(entries=0, copied=1, archived=1)
    assert world.ttl_s(tx_id) == pytest.approx(datp.settings.state_ttl_s, abs=5)
    assert world.due() == set()
    copy = world.archived(tx_id)
    assert copy is not None
    assert (copy["status"], copy["version"]) == ("success", world.fields(tx_id)["version"])
    assert world.archive() == NOTHING


def test_one_that_sleeps_for_long_is_copied_at_once_and_leaves(datp: Kit, world: World) -> None:
    tx_id = datp.submit("rest", {})
    assert world.archive().archived == 1
    assert world.ttl_s(tx_id) == pytest.approx(store.SLEEPING_TTL_S, abs=5)
    assert datp.connections.live.sizes()["sleepingZ"] == 1


def test_one_that_wakes_before_it_would_leave_stays(datp: Kit, world: World) -> None:
    tx_id = datp.submit("rest", {"seconds": store.SLEEPING_TTL_S})
    assert world.archive() == Result(entries=3, copied=1, archived=0)
    assert world.ttl_s(tx_id) is None
    assert world.archived_version(tx_id) == int(world.fields(tx_id)["version"])
    assert world.due() == set()


def test_one_in_doubt_is_copied_and_stays(datp: Kit, world: World) -> None:
    tx_id = world.crashed("pay", "hop.after_step", nth=2)
    datp.recover()
    assert world.status(tx_id) == "in-doubt"
    world.archive()
    copy = world.archived(tx_id)
    assert copy is not None
    assert copy["status"] == "in-doubt"
    assert world.ttl_s(tx_id) is None
    assert world.due() == set()


def test_a_step_that_asks_for_it_and_the_end_of_a_child_leave_a_copy_and_remove_nothing(
    datp: Kit, world: World
) -> None:
    seen: list[set[str]] = []

    @datp.step("t/look")
    def look(ctx: object, data: Data) -> None:
        seen.append(world.due())
        datp.run_job("archiver")

    datp.use(
        Pipeline("marked").step("t/book", checkpoint=True).step("t/look").step("t/rest").build(),
        Pipeline("plain").step("t/book").step("t/look").build(),
        Pipeline("parent").step("t/call").step("t/look").step("t/rest").build(),
    )
    plain = datp.submit("plain", {})
    for name in ("marked", "parent"):
        tx_id = datp.submit(name, {})
        [row] = world.sql("SELECT status FROM tx_state WHERE tx_id = :tx", tx=tx_id)
        assert row.status == "running"
        assert tx_id in seen.pop()
        assert world.status(tx_id) == "sleeping"
        assert world.ttl_s(tx_id) is None
    assert seen == [set()]
    assert world.archived(plain) is None


def test_a_copy_of_one_that_is_queued_is_taken_and_it_stays(datp: Kit, world: World) -> None:
    datp.use(Pipeline("m").step("t/book", checkpoint=True).step("t/book", dispatch="queue").build())
    tx_id = world.queued("m")
    world.run_one_hop()
    assert world.status(tx_id) == "queued"
    assert world.archive().copied == 1
    copy = world.archived(tx_id)
    assert copy is not None
    assert copy["status"] == "queued"
    assert world.ttl_s(tx_id) is None
    assert world.due() == set()
    assert world.ends(tx_id) == "success"


# Only the version that was written is confirmed.


def test_one_that_changed_after_it_was_read_stays_due(datp: Kit, world: World) -> None:
    tx_id = datp.submit("wait", {})
    before = int(world.fields(tx_id)["version"])
    world.at("archiver.after_states", lambda: datp.client.set_switch(tx_id, "other", 1))
    datp.run_job("archiver")
    assert world.archived_version(tx_id) == before
    assert world.ttl_s(tx_id) is None
    assert world.due() == {tx_id}
    assert world.archive().archived == 1
    assert world.archived_version(tx_id) == int(world.fields(tx_id)["version"]) > before
    assert world.ttl_s(tx_id) is not None


def test_one_that_woke_after_it_was_read_goes_on_and_does_not_leave(
    datp: Kit, world: World
) -> None:
    tx_id = datp.submit("wait", {})

    def wake_up() -> None:
        datp.lose_bells()
        datp.client.set_switch(tx_id, "go", 1)
        datp.lose_bells(False)

    world.at("archiver.after_states", wake_up)
    datp.run_job("archiver")
    assert world.status(tx_id) == "queued"
    assert world.ttl_s(tx_id) is None
    assert world.ends(tx_id) == "success"


def test_an_older_version_never_replaces_a_newer_one(datp: Kit, world: World) -> None:
    """As a run would have it that read, was paused, and writes while its role still lasts."""
    old, other = datp.submit("wait", {}), datp.submit("wait", {})
    paused = world.archiver()
    assert paused.take_role()
    world.at("archiver.before_states", lambda: _overtake(datp, world, old))
    paused.save_states(paused.read_states()[0])
    newest = int(world.fields(old)["version"])
    assert world.archived_version(old) == newest
    assert world.archived_version(other) is not None
    paused.leave_role()


def _overtake(kit: Kit, world: World, tx_id: str) -> None:
    kit.client.set_switch(tx_id, "other", 1)
    (fields,) = ArchiveFeed(kit.connections.live).states([tx_id])
    world.sql(
        "INSERT INTO tx_state (tx_id, version, status, fields, archived_at) "
        "VALUES (:tx, :version, 'sleeping', CAST(:fields AS json), now())",
        tx=tx_id,
        version=int(fields["version"]),
        fields=json.dumps(fields),
    )


@pytest.mark.parametrize(("reading", "position"), [(1, 1), (2, 1), (2, 2)])
def test_fields_and_deltas_of_a_copy_belong_together(
    datp: Kit, world: World, monkeypatch: pytest.MonkeyPatch, reading: int, position: int
) -> None:
    """A pipeline of reads is not one moment: a hop may come between any two of them. All fields are
    read first, and again with the deltas of those that have some."""
    live = datp.connections.live
    send = live.send
    tx_id = world.crashed("hop", "hop.after_claim")
    datp.lose_bells()
    datp.recover()
    # It has a delta by now; the next hop replaces that by the whole JSON.
    assert live.redis.llen(live.keys.deltas(tx_id)) > 0

    readings: list[int] = []

    def interrupted(commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        readings.append(len(commands))
        if len(readings) < reading:
            return send(commands)
        monkeypatch.setattr(live, "send", send)
        before = send(commands[:position])
        world.run_one_hop()
        return before + send(commands[position:])

    monkeypatch.setattr(live, "send", interrupted)
    (fields,) = ArchiveFeed(live).states([tx_id])
    assert readings == [1, 3][:reading]
    assert fields["jsonVersion"] == fields["version"]
    replay = datp.operator.replay(tx_id)
    assert replay.view is not None
    assert view_of_copy(fields).state.to_json() == replay.view.state.to_json()
    datp.lose_bells(False)
    assert world.ends(tx_id) == "success"


def test_a_copy_has_the_deltas_that_followed_its_json(datp: Kit, world: World) -> None:
    tx_id = world.crashed("hop", "hop.after_step")
    live = datp.connections.live
    assert live.redis.llen(live.keys.deltas(tx_id)) > 0
    archiver = world.archiver()
    assert archiver.take_role()
    (copied,) = ArchiveFeed(live).copies([tx_id])
    assert archiver.save_states([(tx_id, copied)]) == (1, 0)
    archiver.leave_role()
    states = States(datp.connections.engine, datp.connections.clock)
    replay = datp.operator.replay(tx_id)
    assert replay.view is not None
    in_sql = view_of_copy(states.load([tx_id])[tx_id])
    assert in_sql.state.to_json() == replay.view.state.to_json()
    datp.recover()
    assert world.ends(tx_id) == "success"


# Trouble.


@pytest.fixture
def nobodys_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_database_that_is_down_costs_nothing_but_delay(
    datp: Kit, world: World, nobodys_port: int
) -> None:
    asleep, ended = datp.submit("rest", {}), datp.submit("quick", {})
    datp.clock.advance(seconds=datp.settings.delay_before_archiving_s)
    waiting = world.backlog()
    down = make_url(datp.settings.database_url).set(host="127.0.0.1", port=nobodys_port)
    connections = world.without(database_url=down.render_as_string(hide_password=False))
    for _ in range(3):
        with pytest.raises(OperationalError):
            jobs.run("archiver", connections, lambda group: 0)
        assert world.backlog() == waiting
        assert world.due() == {asleep, ended}
        assert world.ttl_s(asleep) is None
        assert world.ttl_s(ended) is None
    connections.close()
    # Whoever comes next need not wait for the role of one that failed.
    assert world.archive() == Result(entries=waiting, copied=2, archived=2)


@pytest.mark.parametrize("point", POINTS)
def test_after_a_crash_everything_is_recorded_once(datp: Kit, world: World, point: str) -> None:
    tx_ids = [datp.submit("rest", {}) for _ in range(3)]
    ended = datp.submit("quick", {})
    datp.clock.advance(seconds=datp.settings.delay_before_archiving_s)
    entries = world.backlog()
    failpoints.arm(point, "crash")
    with pytest.raises(SimulatedCrash):
        datp.run_job("archiver")
    # More happens meanwhile, so that a row of the next run is not the same as the one before.
    datp.client.set_switch(tx_ids[0], "more", 1)
    datp.advance(seconds=60)
    recorded = [(tx, entry) for tx in (*tx_ids, ended) for entry in world.entries(tx)]
    assert len(recorded) == len(set(recorded)) == entries + 1
    assert world.due() == set()
    for tx_id in (*tx_ids, ended):
        assert world.archived_version(tx_id) == int(world.fields(tx_id)["version"])
        assert world.ttl_s(tx_id) is not None


# One shard alone.


def test_a_shard_that_holds_everything_is_emptied_in_one_run(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "ENTRIES_MAX", 16)
    kit = Kit(datp_servers, archiver_batch_max=1)
    world = World(kit)
    tx_id = kit.submit("wait", {})
    for number in range(20):
        kit.client.set_switch(tx_id, "other", number)
    for _ in range(60):
        kit.submit("wait", {})
    # Each has another shard, by chance: this one must have a neighbour.
    while kit.submit("wait", {})[1:3] != tx_id[1:3]:
        pass
    assert world.backlog() > 20 + 60
    world.archive()
    assert world.backlog() == 0
    assert world.due() == set()
    kit.close()


# Size.


def test_a_state_of_more_than_a_megabyte_is_archived_evicted_and_brought_back(
    datp_servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = 4 * 1024 * 1024
    monkeypatch.setattr(payload, "OUTPUT_BYTES_MAX", limit)
    kit = Kit(datp_servers, input_bytes_max=limit)
    world = World(kit)
    blob = 'ä\\\n\t"€' + "x" * 1_200_000
    tx_id = world.asleep_and_gone("rest", {"blob": blob})
    copy = world.archived(tx_id)
    assert copy is not None
    assert len(copy["state"]) > 1_000_000
    assert kit.status(tx_id).status == "sleeping"
    world.evict(tx_id)
    kit.advance(seconds=HOUR_S)
    assert kit.status(tx_id).output == {"blob": blob, "booked": 2}
    assert world.faults() == {}
    kit.close()
