"""A small system with a transfer in it, for the sweep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from datp_tasks.testing.sweep_faults import OWNER
from tests.chaos.transfer_steps import BANK_URL, pipelines
from tests.chaos.transfer_world import World
from tests.chaos.vector_world import VectorWorld
from tests.support.bank import Bank
from tests.support.bank_process import running_bank


@pytest.fixture(scope="module")
def datp_bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """An outside bank: a process of its own, whose log tells what really happened."""
    with running_bank(tmp_path_factory.mktemp("datp-bank")) as bank:
        yield bank


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
    return World(kit.connections.engine, datp_bank, OWNER)


@pytest.fixture
def vector_world(kit: Kit) -> VectorWorld:
    return VectorWorld(kit)
