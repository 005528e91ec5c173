"""A world whose Redis and journals must hold together when a test is over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datp_tasks.live.invariants import check_all
from datp_tasks.testing import Kit
from tests.archive.archive_world import World


@pytest.fixture
def datp(datp: Kit) -> Iterator[Kit]:
    yield datp
    assert check_all(datp.connections.live) == []


@pytest.fixture
def world(datp: Kit) -> World:
    return World(datp)


@pytest.fixture
def sound(world: World) -> Iterator[World]:
    """The world, with an audit of every transaction at the end."""
    yield world
    assert world.faults() == {}
