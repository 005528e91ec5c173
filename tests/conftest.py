"""Fixtures that tests of several rooms use: the kit, a world with steps of every kind, houses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datp_tasks.live.invariants import check_all
from datp_tasks.testing import Kit
from tests.support.archive_world import World
from tests.support.books import Books

pytest_plugins = ("tests.support.house_fixtures",)


@pytest.fixture
def datp(datp: Kit, request: pytest.FixtureRequest) -> Iterator[Kit]:
    """The shipped kit, and a look at every transaction in Redis when the test is over.

    Tests that damage Redis on purpose are marked `damages_redis`.
    """
    yield datp
    if request.node.get_closest_marker("damages_redis") is None:
        assert check_all(datp.connections.live) == []


@pytest.fixture
def world(datp: Kit) -> World:
    return World(datp)


@pytest.fixture
def sound(world: World) -> Iterator[World]:
    """The world, with an audit of every transaction at the end."""
    yield world
    assert world.faults() == {}


@pytest.fixture
def books(datp: Kit) -> Books:
    return Books(datp.connections.engine)
