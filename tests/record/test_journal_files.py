"""The journal in files of its own, as a last resort."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from datp_tasks import failpoints
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.journal import Entry, living_branch
from datp_tasks.record import journal_files, journal_gap
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.journal_files import JournalFiles
from datp_tasks.record.journal_gap import JOURNAL_FILES
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World

NOW_MS = 1_800_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def world(datp_servers: Servers, folder: Path) -> Iterator[World]:
    kit = Kit(datp_servers, journal_dir=str(folder))
    yield World(kit)
    kit.close()


def entry(version: int, before: int = 0) -> Entry:
    return Entry(version, before, 1, "step", '{"k":"begin"}\n{"k":"close"}', "é\n")


def test_files_hold_what_sql_holds(world: World, folder: Path) -> None:
    tx_ids = [world.kit.submit(name, {"é": "\n"}) for name in ("rest", "undo", "family")]
    world.archive()
    world.kit.advance(seconds=7_200)
    found: dict[str, list[Entry]] = {}
    for tx_id, each in JournalFiles(folder).entries():
        found.setdefault(tx_id, []).append(each)
    assert found == {tx_id: world.entries(tx_id) for tx_id in tx_ids}
    for entries in found.values():
        assert living_branch(entries) == entries


def test_a_batch_that_was_written_twice_is_read_once(world: World, folder: Path) -> None:
    tx_id = world.kit.submit("wait", {})
    failpoints.arm("archiver.after_journal", "crash")
    with pytest.raises(SimulatedCrash):
        world.kit.run_job("archiver")
    world.kit.client.set_switch(tx_id, "a", 1)
    world.archive()
    assert [each for _, each in JournalFiles(folder).entries()] == world.entries(tx_id)


def test_without_a_folder_there_are_no_files(datp: Kit) -> None:
    assert JournalFiles.of(datp.settings) is None


def test_a_file_that_was_cut_off_is_read_up_to_its_last_whole_batch(folder: Path) -> None:
    files = JournalFiles(folder)
    files.append({"a": [entry(1)], "b": [entry(1)]}, NOW_MS)
    [path] = folder.iterdir()
    whole = path.stat().st_size
    files.append({"a": [entry(2, 1)]}, NOW_MS)
    longer = path.stat().st_size
    for size in range(whole, longer):
        cut = path.read_bytes()[:size]
        (folder / "cut").mkdir(exist_ok=True)
        (folder / "cut" / path.name).write_bytes(cut)
        found = list(JournalFiles(folder / "cut").entries())
        assert found[:2] == [("a", entry(1)), ("b", entry(1))]
        assert found[2:] in ([], [("a", entry(2, 1))])
    assert list(files.entries())[2:] == [("a", entry(2, 1))]


def test_no_process_goes_on_in_the_file_of_one_that_was_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container the next process has the same number on the same host."""
    files = JournalFiles(folder)
    files.append({"a": [entry(1)]}, NOW_MS)
    [path] = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-4])
    monkeypatch.setattr(journal_files, "_START", "another")
    files.append({"a": [entry(1)], "b": [entry(1)]}, NOW_MS + 1)
    assert list(files.entries()) == [("a", entry(1)), ("b", entry(1))]


def test_batches_of_several_processes_are_read_in_the_order_of_the_servers_clock(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = JournalFiles(folder)
    for number in range(1, 7):
        # Turn by turn, and over the end of an hour.
        monkeypatch.setattr(journal_files, "_START", f"process-{number % 2}")
        files.append({"a": [entry(number, number - 1)]}, NOW_MS + number * 1_000_000)
    assert len(list(folder.iterdir())) > 2
    assert [each.version for _, each in files.entries()] == [1, 2, 3, 4, 5, 6]


# A folder that cannot be written.


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """As a mount that is gone: not even root can write there."""
    kept = folder.with_name("kept")
    if folder.exists():
        folder.rename(kept)
    folder.write_text("this is no folder")
    yield
    folder.unlink()
    if kept.exists():
        kept.rename(folder)


def gaps(world: World) -> list[str]:
    alerts = Alerts(world.kit.connections.engine, world.kit.clock)
    return [each.summary for each in alerts.open_alerts(JOURNAL_FILES)]


def in_files(folder: Path) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for tx_id, each in JournalFiles(folder).entries():
        found.setdefault(tx_id, []).append(each)
    return found


def move(world: World, tx_id: str, value: int) -> None:
    world.kit.client.set_switch(tx_id, "other", value)
    world.archive()
    world.kit.clock.advance(seconds=600)


def test_a_folder_that_cannot_be_written_holds_nothing_up_and_gets_everything_later(
    world: World, folder: Path
) -> None:
    tx_id, other = (world.kit.submit("wait", {}) for _ in range(2))
    move(world, tx_id, 1)
    assert gaps(world) == []
    with unwritable(folder):
        for value in range(2, 12):
            move(world, tx_id, value)
            assert world.backlog() == 0
            [summary] = gaps(world)
            assert str(folder) in summary
    move(world, other, 1)
    assert gaps(world) == []
    move(world, tx_id, 12)
    assert in_files(folder) == {tx: world.entries(tx) for tx in (tx_id, other)}


def test_what_is_missing_is_added_although_nothing_happens_any_more(
    world: World, folder: Path
) -> None:
    with unwritable(folder):
        tx_id = world.kit.submit("wait", {})
        world.archive()
        assert gaps(world)
    world.archive()
    assert gaps(world) == []
    assert in_files(folder) == {tx_id: world.entries(tx_id)}


def test_a_long_gap_is_filled_in_parts(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_gap, "ROWS_MAX", 2)
    monkeypatch.setattr(journal_gap, "CATCH_UP_S", 0)
    with unwritable(folder):
        tx_ids = [world.kit.submit("wait", {}) for _ in range(11)]
        world.archive()
    for _ in range(2):
        world.archive()
        assert gaps(world)
    # More comes while it is being filled; later by the clock, as on any server.
    world.kit.clock.advance(seconds=1)
    move(world, tx_ids[0], 1)
    for _ in range(6):
        world.archive()
    assert gaps(world) == []
    assert in_files(folder) == {tx: world.entries(tx) for tx in tx_ids}


@pytest.mark.parametrize("fails_again", [False, True])
def test_what_is_recorded_after_the_clock_went_back_is_added_too(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, fails_again: bool
) -> None:
    """PostgreSQL fails over to a server whose clock is behind while the files are given what they
    lack: the new row sorts before those that they have."""
    monkeypatch.setattr(journal_gap, "ROWS_MAX", 2)
    monkeypatch.setattr(journal_gap, "CATCH_UP_S", 0)
    with unwritable(folder):
        tx_ids = [world.kit.submit("wait", {}) for _ in range(7)]
        world.archive()
    for _ in range(2):
        world.archive()
        assert gaps(world)
    world.kit.clock.advance(seconds=-60)
    world.kit.client.set_switch(tx_ids[0], "other", 1)
    with unwritable(folder) if fails_again else nullcontext():
        world.archive()
    for _ in range(7):
        world.archive()
    assert gaps(world) == []
    # Redis has the same clock here, so its files are not in the order of versions.
    versions = {tx: sorted(e.version for e in found) for tx, found in in_files(folder).items()}
    assert versions == {tx: [each.version for each in world.entries(tx)] for tx in tx_ids}


def test_half_a_batch_is_taken_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk takes the first half; what follows must be readable all the same."""
    files = JournalFiles(folder)
    files.append({"a": [entry(1)]}, NOW_MS)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="full"):
            files.append({"a": [entry(2, 1)]}, NOW_MS)
    files.append({"a": [entry(3, 2)]}, NOW_MS)
    assert [each.version for _, each in files.entries()] == [1, 3]
