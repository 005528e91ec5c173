"""The pytest plugin.

Fixtures: `datp` (a fresh Kit per test) and `datp_servers` (the same servers for all of them).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from datp_tasks.testing.kit import Kit
    from datp_tasks.testing.servers import Servers


@pytest.fixture(scope="session")
def datp_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Real Redis and PostgreSQL: yours if the environment names them, else embedded ones."""
    from datp_tasks.testing.servers import test_servers

    with test_servers(tmp_path_factory.mktemp("datp")) as servers:
        yield servers


@pytest.fixture
def datp(datp_servers: Servers, request: pytest.FixtureRequest) -> Iterator[Kit]:
    """A whole system in this process: empty, with a clock that stands still."""
    from datp_tasks.testing.kit import Kit

    kit = Kit(datp_servers)
    kit.folders = (request.path.parent, *kit.folders)
    yield kit
    kit.close()
