"""This version on servers of its own, which are to be loaded with what an older one has left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datp_tasks.testing.servers import Servers
from tests.support.receiver import Receiver, receiving
from tests.upgrade.upgraded import Upgraded, administer, own_database


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def before(datp_servers: Servers, receiver: Receiver) -> Iterator[Upgraded]:
    servers, name = own_database(datp_servers)
    kit = Upgraded(servers, receiver.url("/"))
    yield kit
    kit.wipe()
    kit.close()
    administer(datp_servers, f"DROP DATABASE {name} WITH (FORCE)")
