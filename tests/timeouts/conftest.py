"""The log of state changes, and a kit whose Redis must hold together afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datp_tasks.live.invariants import check_all
from datp_tasks.testing import Kit
from tests.engine.books import Books
from tests.timeouts.change_log import ChangeLog


@pytest.fixture
def datp(datp: Kit) -> Iterator[Kit]:
    """The kit, and a look at every transaction in Redis when the test is over."""
    yield datp
    assert check_all(datp.connections.live) == []


@pytest.fixture
def log(datp: Kit) -> ChangeLog:
    return ChangeLog(datp)


@pytest.fixture
def books(datp: Kit) -> Books:
    return Books(datp.connections.engine)
