"""The journal in SQL: in order, without gaps, each entry once, and sealed."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from datp_tasks import failpoints
from datp_tasks.errors import ArchiveRefused, RoleLost
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.model.journal import chained_hash
from datp_tasks.record.archiver_role import ArchiverRole
from datp_tasks.record.copying import copy_in
from datp_tasks.record.database import is_outage
from datp_tasks.record.journal import Journal
from datp_tasks.record.states import States
from datp_tasks.testing import Kit
from tests.support.archive_world import World


def in_order(world: World, tx_id: str) -> None:
    """Each entry follows the one before it, from the first on."""
    entries = world.entries(tx_id)
    assert entries
    assert [each.before for each in entries] == [0, *(each.version for each in entries[:-1])]
    rows = world.journal(tx_id)
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))


def test_entries_of_many_transactions_are_in_order_and_without_gaps(
    datp: Kit, sound: World
) -> None:
    tx_ids = [datp.submit(name, {}) for name in ("rest", "wait", "undo", "family", "hop") * 3]
    sound.archive()
    for tx_id in tx_ids[1::5]:
        datp.client.set_switch(tx_id, "go", 1)
    datp.client.cancel(tx_ids[0])
    sound.archive()
    datp.advance(seconds=7_200)
    datp.advance(seconds=7_200)
    assert sound.backlog() == 0
    for tx_id in tx_ids:
        in_order(sound, tx_id)
        assert datp.status(tx_id).is_final


def test_a_row_holds_all_entries_of_one_reading(datp: Kit, sound: World) -> None:
    tx_id = datp.submit("rest", {})
    assert sound.archive().entries == 3
    [row] = sound.journal(tx_id)
    assert [each.kind for each in sound.entries(tx_id)] == ["claim", "step", "sleep"]
    assert (row.number, row.last_version) == (1, sound.entries(tx_id)[-1].version)
    datp.client.wake(tx_id)
    sound.archive()
    first, second = sound.journal(tx_id)
    assert first == row
    assert second.hash == chained_hash(first.hash, tx_id, second.entries)


@pytest.mark.parametrize("more", [False, True], ids=["nothing-new", "more-meanwhile"])
@pytest.mark.parametrize("going_on", [False, True], ids=["first-row", "later-row"])
def test_what_is_read_twice_is_recorded_once(
    datp: Kit, sound: World, more: bool, going_on: bool
) -> None:
    """A crash between SQL and Redis; the next run reads the same, or the same and more."""
    tx_id, neighbour = datp.submit("wait", {}), datp.submit("wait", {})
    if going_on:
        sound.archive()
        datp.client.set_switch(tx_id, "a", 1)
        datp.client.set_switch(neighbour, "a", 1)
    failpoints.arm("archiver.after_journal", "crash")
    with pytest.raises(SimulatedCrash):
        datp.run_job("archiver")
    assert sound.backlog() > 0
    if more:
        datp.client.set_switch(tx_id, "b", 2)
        datp.client.set_switch(tx_id, "b", 3)
    sound.archive()
    assert sound.backlog() == 0
    kinds = ["claim", "sleep", *(["switch"] if going_on else [])]
    assert [each.kind for each in sound.entries(neighbour)] == kinds
    assert [each.kind for each in sound.entries(tx_id)] == kinds + ["switch", "switch"] * more
    in_order(sound, tx_id)


@pytest.mark.parametrize("again", [False, True], ids=["copied", "inserted"])
def test_a_row_has_its_entries_to_the_letter(
    datp: Kit, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows travel as one text; one that is there already makes the others go another way."""
    connections = datp.connections
    journal = Journal(connections.engine, connections.clock)
    role = ArchiverRole("test", 10**15)
    plain = {"t00-plain": ["@1 0 0 claim "]}
    if again:
        journal.append(role, plain, {})
    else:
        monkeypatch.delattr(Journal, "_append_missing")
    text = '@1 0 0 claim \\ \\n \\N \\.\t\r,"\'é\u2028\n{"k":"a\\\\b\\n"}\n\\.'
    assert journal.append(role, {**plain, "t00-odd": [text]}, {}) == 2 - again
    [row] = journal.rows(["t00-odd"])
    assert row.entries == text
    assert (row.first_version, row.last_version) == (1, 1)
    assert [each.number for each in journal.rows(["t00-plain"])] == [1]


def test_a_connection_that_is_lost_while_rows_are_copied_is_no_fault_of_theirs(
    datp: Kit, sound: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an outage, and the connection that is gone does not come back from the pool."""
    tx_id = datp.submit("wait", {})

    def cut(connection: Connection, statement: str, text: str) -> None:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        sound.sql("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
        copy_in(connection, statement, text)

    with monkeypatch.context() as patch:
        patch.setattr("datp_tasks.record.journal.copy_in", cut)
        with pytest.raises(OperationalError) as raised:
            sound.archive()
    assert is_outage(raised.value)
    assert sound.archive().entries == 2
    assert len(sound.journal(tx_id)) == 1


def test_what_postgresql_refuses_is_asked_for_once_and_not_quoted(
    datp: Kit, sound: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = datp.connections
    journal = Journal(connections.engine, connections.clock)
    monkeypatch.delattr(Journal, "_append_missing")
    refused = {"t00-refused": ['@1 0 0 claim \n{"pan":"4111"}']}
    sound.sql("ALTER TABLE tx_journal ADD CONSTRAINT refused CHECK (tx_id <> 't00-refused')")
    try:
        with pytest.raises(ArchiveRefused) as raised:
            journal.append(ArchiverRole("test", 10**15), refused, {})
    finally:
        sound.sql("ALTER TABLE tx_journal DROP CONSTRAINT refused")
    told = "".join(traceback.format_exception(raised.value))
    assert "violates check constraint" in told
    assert "4111" not in told


@pytest.mark.parametrize("odd", ["\x00", "\ud800"], ids=["NUL", "half of a character"])
def test_what_no_text_can_hold_is_refused_beside_what_is_there_already(datp: Kit, odd: str) -> None:
    """PostgreSQL refuses the one, and Python the other before anything is sent."""
    connections = datp.connections
    journal = Journal(connections.engine, connections.clock)
    role = ArchiverRole("test", 10**15)
    known = {"t00-known": ["@1 0 0 claim "]}
    journal.append(role, known, {})
    with pytest.raises(ArchiveRefused):
        journal.append(role, {**known, "t00-odd": [f"@1 0 0 claim {odd}"]}, {})


def test_one_that_loses_the_role_meanwhile_adds_nothing_to_what_is_there(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = datp.connections
    journal = Journal(connections.engine, connections.clock)
    old, new = ArchiverRole("old", 10**15), ArchiverRole("new", 10**15 + 1)
    known = {"t00-known": ["@1 0 0 claim "]}
    journal.append(old, known, {})
    append_missing = Journal._append_missing

    def overtaken(*arguments: Any) -> int:
        monkeypatch.setattr(Journal, "_append_missing", append_missing)
        journal.append(new, {"t00-other": ["@1 0 0 claim "]}, {})
        return append_missing(*arguments)

    monkeypatch.setattr(Journal, "_append_missing", overtaken)
    with pytest.raises(RoleLost):
        journal.append(old, {**known, "t00-late": ["@1 0 0 claim "]}, {})
    assert journal.rows(["t00-late"]) == []


def test_what_did_not_reach_sql_stays_in_redis(datp: Kit, sound: World) -> None:
    datp.submit("wait", {})
    before = sound.backlog()
    failpoints.arm("archiver.before_journal", "crash")
    with pytest.raises(SimulatedCrash):
        datp.run_job("archiver")
    assert sound.backlog() == before
    assert sound.archive().entries == before


# What an audit finds.

REMOVE = "DELETE FROM tx_journal WHERE tx_id = :tx AND number = :number"


def remove(number: int) -> Callable[[World, str], Any]:
    return lambda world, tx_id: world.sql(REMOVE, tx=tx_id, number=number)


def alter(world: World, tx_id: str) -> None:
    world.sql(
        "UPDATE tx_journal SET entries = replace(entries, '86400', '86401') "
        "WHERE tx_id = :tx AND number = 1",
        tx=tx_id,
    )


def alter_and_seal(world: World, tx_id: str) -> None:
    """One that knows how hashes are made, and seals the row, but not those after it."""
    alter(world, tx_id)
    row = world.journal(tx_id)[0]
    world.sql(
        "UPDATE tx_journal SET hash = :hash WHERE tx_id = :tx AND number = 1",
        hash=chained_hash("", tx_id, row.entries),
        tx=tx_id,
    )


def swap(world: World, tx_id: str) -> None:
    for old, new in ((1, 99), (2, 1), (99, 2)):
        world.sql(
            "UPDATE tx_journal SET number = :new WHERE tx_id = :tx AND number = :old",
            tx=tx_id,
            old=old,
            new=new,
        )


DAMAGES: list[tuple[str, Callable[[World, str], Any], str]] = [
    ("first", remove(1), "row 1 of its journal is missing"),
    ("middle", remove(2), "row 2 of its journal is missing"),
    ("last", remove(3), "newer than its journal"),
    ("altered", alter, "row 1 of its journal was altered"),
    ("altered-and-sealed", alter_and_seal, "row 2 of its journal was altered"),
    ("swapped", swap, "row 1 of its journal was altered"),
]


@pytest.mark.parametrize("is_evicted", [False, True], ids=["live", "evicted"])
@pytest.mark.parametrize(
    ("damage", "fault"), [each[1:] for each in DAMAGES], ids=[each[0] for each in DAMAGES]
)
def test_an_audit_names_what_was_done_to_a_journal(
    datp: Kit, world: World, damage: Callable[[World, str], Any], fault: str, is_evicted: bool
) -> None:
    tx_id, other = datp.submit("wait", {"x": "a"}), datp.submit("wait", {})
    world.archive()
    for value in (1, 2):
        datp.client.set_switch(tx_id, "a", value)
        world.archive()
    assert len(world.journal(tx_id)) == 3
    if is_evicted:
        world.evict(tx_id)
    assert world.faults() == {}
    damage(world, tx_id)
    found = world.faults()
    assert list(found) == [tx_id], f"{other} is not touched"
    assert any(fault in each for each in found[tx_id]), found


@pytest.mark.parametrize("number", [1, 2])
def test_a_row_missing_of_one_that_has_ended_and_left_is_found(
    datp: Kit, world: World, number: int
) -> None:
    tx_id = datp.submit("wait", {})
    world.archive()
    datp.client.set_switch(tx_id, "go", 1)
    datp.advance(seconds=61)
    world.evict(tx_id)
    world.sql("DELETE FROM tx_state WHERE tx_id = :tx", tx=tx_id)
    assert world.faults() == {}
    remove(number)(world, tx_id)
    assert list(world.faults()) == [tx_id]


def test_an_audit_finds_a_state_that_was_changed_by_hand(datp: Kit, world: World) -> None:
    live_one, archived_one = datp.submit("wait", {}), datp.submit("wait", {})
    world.archive()
    live = datp.connections.live
    live.redis.hset(live.keys.state(live_one), "progress", '{"made": "up"}')
    world.sql(
        "UPDATE tx_state SET fields = CAST(replace(fields::text, 'wait', 'rest') AS json) "
        "WHERE tx_id = :tx",
        tx=archived_one,
    )
    found = world.faults()
    assert found.pop(live_one) == ["its journal leads to another progress than its live state"]
    assert found == {archived_one: ["its journal leads to another state than its archived state"]}


def test_an_audit_finds_a_summary_that_was_changed_by_hand(datp: Kit, world: World) -> None:
    status, output = datp.submit("quick", {}), datp.submit("quick", {})
    world.sql("UPDATE tx_summary SET status = 'failed' WHERE tx_id = :tx", tx=status)
    world.sql("UPDATE tx_summary SET output = '{\"booked\": 9}' WHERE tx_id = :tx", tx=output)
    assert world.faults() == {
        status: ["SQL says failed, its journal says success"],
        output: ["its journal leads to another output than its summary has"],
    }


@pytest.mark.parametrize("archive_every", [2, 3, 99])
def test_an_audit_of_a_running_system_finds_nothing(
    datp: Kit, sound: World, monkeypatch: pytest.MonkeyPatch, archive_every: int
) -> None:
    """Between any two of its reads a transaction may move, be archived and leave."""
    tx_id = datp.submit("wait", {})
    number = 0

    def move() -> None:
        nonlocal number
        number += 1
        datp.client.set_switch(tx_id, "a", number)
        if number % archive_every == 0:
            datp.run_job("archiver")

    reads: list[tuple[type, str]] = [
        (States, "load"),
        (ArchiveFeed, "states"),
        (ArchiveFeed, "waiting_entries"),
        (Journal, "rows"),
    ]
    busy = False

    for owner, name in reads:
        original = getattr(owner, name)

        def moving(*arguments: Any, original: Any = original, **options: Any) -> Any:
            nonlocal busy
            answer = original(*arguments, **options)
            if not busy:
                busy = True
                move()
                busy = False
            return answer

        monkeypatch.setattr(owner, name, moving)
    for _ in range(4):
        assert datp.operator.replay(tx_id).faults == []
    assert number >= 16


def test_a_sample_has_the_size_asked_for_and_the_same_seed_takes_the_same(
    datp: Kit, world: World
) -> None:
    everything = {datp.submit("wait", {}) for _ in range(30)}
    first = [each.tx_id for each in datp.operator.audit(sample=10, seed=7)]
    assert len(set(first)) == 10
    assert [each.tx_id for each in datp.operator.audit(sample=10, seed=7)] == first
    assert [each.tx_id for each in datp.operator.audit(sample=10, seed=8)] != first
    assert {each.tx_id for each in datp.operator.audit(sample=99)} == everything
    assert {each.tx_id for each in datp.operator.audit()} == everything
