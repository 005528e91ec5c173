"""Worlds for the tests of the ledger room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from datp_tasks import failpoints
from datp_tasks.ledger import submitter
from datp_tasks.testing.servers import Servers
from tests.support.ledger_world import World

NewWorld = Callable[..., World]


@pytest.fixture
def new_world(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewWorld]:
    """Makes worlds that end with the test.

    One POST per run, and no batch is followed: the test decides what happens when.
    """
    monkeypatch.setattr(submitter, "FOLLOW_S", 0)
    monkeypatch.setattr(submitter, "RUN_S", 0)
    with ExitStack() as stack:
        stack.callback(failpoints.disarm_all)

        def make(**changes: Any) -> World:
            world = World(datp_servers, **changes)
            stack.callback(world.close)
            return world

        yield make


@pytest.fixture
def world(new_world: NewWorld) -> World:
    """One world with a scabbard ledger, which executes whatever it is sent."""
    return new_world()
