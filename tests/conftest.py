"""Fixtures that tests of several rooms use: the kit, a world with steps of every kind, houses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from datp_tasks.live.invariants import check_all
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World
from tests.support.books import Books

# As in the kit: commands that tests run are those of one person.
os.environ.setdefault("DATP_SECURITY__POLICY_FILE", "single-person")

pytest_plugins = ("tests.support.house_fixtures",)


@pytest.fixture
def datp(request: pytest.FixtureRequest, datp_servers: Servers, tmp_path: Path) -> Iterator[Kit]:
    """The shipped fixture, and a look at every transaction in Redis when the test is over.

    `@pytest.mark.kit(crashes_max=3)` makes one with settings of its own; `policy=` is the text of
    its policy file.
    """
    marker = request.node.get_closest_marker("kit")
    if marker is None:
        kit: Kit = request.getfixturevalue("datp")
        yield kit
        assert check_all(kit.connections.live) == []
        return
    settings = dict(marker.kwargs)
    if policy := settings.pop("policy", ""):
        file = tmp_path / "policy.yaml"
        file.write_text(policy)
        settings["policy_file"] = str(file)
    kit = Kit(datp_servers, **settings)
    yield kit
    assert check_all(kit.connections.live) == []
    kit.close()


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
