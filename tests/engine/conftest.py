"""Whatever a test of the engine does, Redis must hold together afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datp_tasks.live.invariants import check_all
from datp_tasks.testing import Kit
from tests.engine.books import Books


@pytest.fixture
def datp(datp: Kit) -> Iterator[Kit]:
    """The kit, and a look at every transaction in Redis when the test is over."""
    yield datp
    assert check_all(datp.connections.live) == []


@pytest.fixture
def books(datp: Kit) -> Books:
    return Books(datp.connections.engine)
