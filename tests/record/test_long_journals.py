"""A transaction that lives long has a long journal: what is read of it does not grow with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from datp_tasks.model.journal import entries_from_text
from datp_tasks.model.view import View
from datp_tasks.record.journal import Journal, Query
from datp_tasks.testing import Kit
from tests.support.archive_world import World

ROWS = 3_000

LONG = """
INSERT INTO tx_journal (tx_id, number, first_version, last_version, entries, hash, recorded_at)
SELECT :tx, n, n * 10, n * 10 + 9, '@' || n * 10 || ' 0 1 switch ', md5(n::text), now()
FROM generate_series(1, :rows) n
"""


def rows_read(world: World, sql: str, **values: Any) -> int:
    """How many rows of the journal a statement touches, as PostgreSQL counts them."""
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}"
    with world.kit.connections.engine.connect() as connection:
        [[text]] = connection.exec_driver_sql(explain, values).all()
    return _touched(json.loads(text)[0]["Plan"])


def _touched(node: dict[str, Any]) -> int:
    own = 0
    if node.get("Relation Name") == "tx_journal":
        per_loop = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        own = round(per_loop * node["Actual Loops"])
    return own + sum(map(_touched, node.get("Plans", ())))


@pytest.fixture
def long_ones(world: World) -> list[str]:
    tx_ids = [f"t0{number}-{'0' * 32}" for number in range(3)]
    for tx_id in tx_ids:
        world.sql(LONG, tx=tx_id, rows=ROWS)
    world.sql("ANALYZE tx_journal")
    return tx_ids


def test_appending_looks_at_the_last_row_only(world: World, long_ones: list[str]) -> None:
    assert rows_read(world, Query.heads, tx_id=[*long_ones, "unknown"]) == len(long_ones)
    connections = world.kit.connections
    versions = Journal(connections.engine, connections.clock).last_versions([*long_ones, "unknown"])
    assert versions == dict.fromkeys(long_ones, ROWS * 10 + 9)


def test_what_followed_a_version_is_read_without_what_was_before(
    world: World, long_ones: list[str]
) -> None:
    first, second, _ = long_ones
    since = {first: ROWS * 10 + 9, second: (ROWS - 2) * 10 + 5}
    values = {"tx_id": list(since), "since": list(since.values())}
    assert rows_read(world, Query.rows_since, **values) <= 2 * (1 + 3)
    connections = world.kit.connections
    found = Journal(connections.engine, connections.clock).entries_since(since)
    assert [each.version for each in found[first]] == [ROWS * 10]
    assert [each.version for each in found[second]] == [(ROWS - n) * 10 for n in (2, 1, 0)]


def test_one_that_comes_back_from_its_copy_needs_no_history(
    datp: Kit, sound: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx_id = datp.submit("wait", {})
    for number in range(30):
        datp.client.set_switch(tx_id, "other", number)
        sound.archive()
    sound.evict(tx_id)
    parsed: list[str] = []

    def counting(text: str) -> Any:
        parsed.append(text)
        return entries_from_text(text)

    monkeypatch.setattr("datp_tasks.record.journal.entries_from_text", counting)
    datp.connections.recovery.restorer.restore([tx_id])
    assert sound.fields(tx_id)["switch:other"] == "30:29"
    assert len(parsed) <= 1


def test_one_whose_copy_is_of_a_branch_that_was_lost_is_read_from_the_beginning(
    datp: Kit, sound: World
) -> None:
    """Its copy is newer than what Redis went on from; then only the whole journal tells."""
    tx_id = datp.submit("wait", {})
    datp.client.set_switch(tx_id, "other", 1)
    sound.archive()
    datp.clock.advance(seconds=1)
    with sound.rewound():
        datp.client.set_switch(tx_id, "other", 2)
        sound.archive()
    copied = sound.archived_version(tx_id)
    datp.clock.advance(seconds=1)
    datp.client.set_switch(tx_id, "other", 3)
    archiver = sound.archiver()
    assert archiver.take_role()
    archiver.drain()
    archiver.leave_role()
    assert sound.archived_version(tx_id) == copied
    summaries = datp.connections.record.summaries([tx_id])
    view = datp.connections.recovery.restorer.views.load(summaries)[tx_id]
    assert sound.entries(tx_id)[-1].before != copied
    assert isinstance(view, View)
    assert view.switches["other"].endswith(":3")
    datp.run_job("reconciler")
