"""A stage on real Redis for each test; when the test is over, nothing may be out of place, and the
journal must explain every version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datp_tasks.clock import ServerClock
from datp_tasks.live.invariants import check_all
from datp_tasks.testing.servers import Servers
from tests.support.live_states import Stage


@pytest.fixture
def loose_stage(datp_servers: Servers) -> Iterator[Stage]:
    """For tests that break things on purpose: nothing is checked at the end."""
    stage = Stage(datp_servers)
    yield stage
    stage.close()


@pytest.fixture
def stage(loose_stage: Stage) -> Iterator[Stage]:
    yield loose_stage
    assert check_all(loose_stage.live) == []
    assert loose_stage.unexplained() == []


@pytest.fixture
def real_time_stage(datp_servers: Servers) -> Iterator[Stage]:
    """One whose scripts ask Redis for the time."""
    stage = Stage(datp_servers, ServerClock())
    yield stage
    assert check_all(stage.live) == []
    assert stage.unexplained() == []
    stage.close()
