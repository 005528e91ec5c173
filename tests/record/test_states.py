"""Copies of states in SQL: the newest stays, also where a batch was taken for new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from datp_tasks.record.archiver_role import ArchiverRole
from datp_tasks.record.states import StateCopy, States
from datp_tasks.testing import Kit

ROLE = ArchiverRole("test", 10**15)


def copy(tx_id: str, version: int) -> StateCopy:
    return StateCopy(tx_id, version, "success", json.dumps({"version": str(version)}))


@pytest.fixture
def states(datp: Kit) -> States:
    return States(datp.connections.engine, datp.connections.clock)


@pytest.fixture
def heard(datp: Kit) -> Iterator[list[str]]:
    """The queries for versions."""
    heard: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("SELECT tx_id, version"):
            heard.append(statement)

    engine = datp.connections.engine
    event.listen(engine, "before_cursor_execute", hear)
    yield heard
    event.remove(engine, "before_cursor_execute", hear)


def test_what_follows_new_ones_is_taken_for_new(states: States, heard: list[str]) -> None:
    for name in ("t00-a", "t00-b", "t00-c"):
        states.save(ROLE, [copy(name, 1)])
    assert len(heard) == 1
    assert states.versions(["t00-a", "t00-b", "t00-c"]) == {"t00-a": 1, "t00-b": 1, "t00-c": 1}


def test_a_copy_that_is_not_new_replaces_the_older_one(states: States) -> None:
    states.save(ROLE, [copy("t00-a", 1), copy("t00-b", 5)])
    # Taken for new, refused by PostgreSQL as a whole, and then looked at one by one.
    states.save(ROLE, [copy("t00-a", 2), copy("t00-b", 4), copy("t00-c", 1)])
    assert states.versions(["t00-a", "t00-b", "t00-c"]) == {"t00-a": 2, "t00-b": 5, "t00-c": 1}
    assert states.load(["t00-a"]) == {"t00-a": {"version": "2"}}


def test_after_one_that_was_not_new_each_is_looked_at_again(
    states: States, heard: list[str]
) -> None:
    states.save(ROLE, [copy("t00-a", 1)])
    states.save(ROLE, [copy("t00-a", 2)])
    heard.clear()
    states.save(ROLE, [copy("t00-b", 1)])
    assert len(heard) == 1
    states.save(ROLE, [copy("t00-c", 1)])
    assert len(heard) == 1
