"""The log of state changes."""

from __future__ import annotations

import pytest

from datp_tasks.testing import Kit
from tests.timeouts.change_log import ChangeLog


@pytest.fixture
def log(datp: Kit) -> ChangeLog:
    return ChangeLog(datp)
