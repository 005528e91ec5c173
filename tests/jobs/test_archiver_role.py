"""One archiver at a time: Redis grants the role for a while, SQL refuses whoever had it before."""

from __future__ import annotations

import logging

import pytest

from datp_tasks.errors import RoleLost
from datp_tasks.jobs.archiver import Result
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.testing import Kit
from tests.support.archive_world import World
from tests.support.eventually import eventually

NOTHING = Result(entries=0, copied=0, archived=0)
LOCKS = ("archiveLock1", "archiveLock2")


@pytest.fixture
def world(sound: World) -> World:
    return sound


def let_lapse(kit: Kit, *locks: str) -> None:
    """As time does."""
    keys = kit.connections.live.keys
    for lock in locks:
        kit.connections.redis.delete(keys.in_shard("archive", lock))


def take(outgoing: ArchiveFeed, node: str) -> int | None:
    return outgoing.take_role(node, role_ms=30_000, grace_ms=15_000)


def test_the_role_is_held_then_rests_and_is_then_granted_to_another(datp: Kit) -> None:
    outgoing = ArchiveFeed(datp.connections.live)
    first = take(outgoing, "a")
    assert first is not None
    # HELD
    assert take(outgoing, "b") is None
    assert take(outgoing, "a") == first
    # GRACE: nobody new begins, the last one may end what it has begun.
    let_lapse(datp, "archiveLock1")
    assert take(outgoing, "b") is None
    # GRANTED
    let_lapse(datp, "archiveLock2")
    second = take(outgoing, "b")
    assert second is not None
    assert second > first
    assert take(outgoing, "a") is None


def test_the_last_holder_may_have_it_again_without_a_pause(datp: Kit) -> None:
    outgoing = ArchiveFeed(datp.connections.live)
    first = take(outgoing, "a")
    let_lapse(datp, "archiveLock1")
    again = take(outgoing, "a")
    assert first is not None
    assert again is not None
    assert again > first


def test_the_role_lapses_by_itself(datp: Kit) -> None:
    outgoing = ArchiveFeed(datp.connections.live)
    assert outgoing.take_role("a", role_ms=1, grace_ms=30) is not None
    eventually(lambda: take(outgoing, "b") is not None)


def test_a_node_that_leaves_gives_the_role_back_and_only_its_own(datp: Kit) -> None:
    outgoing = ArchiveFeed(datp.connections.live)
    take(outgoing, "a")
    outgoing.leave_role("b")
    assert take(outgoing, "b") is None
    outgoing.leave_role("a")
    assert take(outgoing, "b") is not None


def test_fences_of_the_role_grow_although_redis_loses_everything(datp: Kit, world: World) -> None:
    outgoing = ArchiveFeed(datp.connections.live)
    first = take(outgoing, "a")
    datp.clock.advance(seconds=1)
    world.wipe()
    second = take(outgoing, "b")
    assert first is not None
    assert second is not None
    assert second > first


def test_a_second_archiver_does_nothing_while_the_first_is_at_work(datp: Kit, world: World) -> None:
    tx_id = datp.submit("rest", {})
    other = datp.another()
    results: list[Result] = []
    world.at("archiver.before_journal", lambda: results.append(other.run_job("archiver")))
    first = world.archive()
    assert results == [NOTHING]
    assert (first.entries, first.archived) == (3, 1)
    assert len(world.journal(tx_id)) == 1
    # The role was given back, so that the next one need not wait.
    datp.client.set_switch(tx_id, "x", 1)
    assert other.run_job("archiver").archived == 1
    other.close()


@pytest.mark.parametrize("point", ["archiver.after_role", "archiver.before_journal"])
def test_a_journal_is_not_written_by_one_that_was_paused_past_its_role(
    datp: Kit, world: World, point: str, caplog: pytest.LogCaptureFixture
) -> None:
    tx_id = datp.submit("rest", {})
    other = datp.another()

    def others_turn() -> None:
        let_lapse(datp, *LOCKS)
        assert other.run_job("archiver").archived == 1
        datp.client.set_switch(tx_id, "later", 1)

    world.at(point, others_turn)
    with caplog.at_level(logging.WARNING, "datp.archiver"):
        assert world.archive() == NOTHING
    assert "another node archives by now" in caplog.text
    # Nothing was taken out that SQL does not have.
    assert world.backlog() == 1
    assert world.due() == {tx_id}
    assert world.archive().archived == 1
    assert len(world.entries(tx_id)) == 4
    other.close()


def test_a_state_is_not_written_by_one_that_was_paused_past_its_role(
    datp: Kit, world: World
) -> None:
    tx_id = datp.submit("rest", {})
    other = datp.another()
    paused = world.archiver()
    assert paused.take_role()

    def others_turn() -> None:
        datp.client.set_switch(tx_id, "later", 1)
        let_lapse(datp, *LOCKS)
        assert other.run_job("archiver").archived == 1

    world.at("archiver.before_states", others_turn)
    newest = int(world.fields(tx_id)["version"])
    with pytest.raises(RoleLost, match="this one was too slow"):
        paused.save_states(paused.read_states()[0])
    assert (world.archived_version(tx_id) or 0) > newest
    # It must not give away the role of its successor.
    successor = other.connections
    outgoing = ArchiveFeed(successor.live)
    assert take(outgoing, "successor") is not None
    paused.leave_role()
    assert take(outgoing, "somebody") is None
    other.close()


def test_one_that_was_paused_after_its_commit_may_confirm_what_it_wrote(
    datp: Kit, world: World
) -> None:
    """Its version is in SQL, whoever has the role by now."""
    kept, changed = datp.submit("rest", {}), datp.submit("rest", {})
    paused = world.archiver()
    assert paused.take_role()

    def others_turn() -> None:
        let_lapse(datp, *LOCKS)
        datp.client.set_switch(changed, "later", 1)

    world.at("archiver.after_states", others_turn)
    assert paused.save_states(paused.read_states()[0]) == (2, 1)
    assert world.ttl_s(kept) is not None
    assert world.ttl_s(changed) is None
    assert world.due() == {changed}
