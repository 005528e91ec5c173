"""A small system with a transfer in it, for the sweep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datp_tasks.testing import Kit
from datp_tasks.testing.bank import Bank
from datp_tasks.testing.servers import Servers
from tests.chaos.transfer_steps import BANK_URL, pipelines
from tests.chaos.transfer_world import World
from tests.chaos.vector_world import VectorWorld


@pytest.fixture
def kit(datp_servers: Servers, datp_bank: Bank, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    """Few shards: each look at all of them takes time, and there are thousands of looks."""
    monkeypatch.setenv(BANK_URL, datp_bank.url)
    made = Kit(datp_servers, shards=2)
    made.use(*(pipeline.build() for pipeline in pipelines()))
    yield made
    made.close()


@pytest.fixture
def world(kit: Kit, datp_bank: Bank) -> World:
    return World(kit.connections.engine, datp_bank)


@pytest.fixture
def vector_world(kit: Kit) -> VectorWorld:
    return VectorWorld(kit)
