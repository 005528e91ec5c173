"""A Redis Cluster of three masters for the state; the rest is as in every other ring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from datp_tasks.live.invariants import check_all
from datp_tasks.local.redis_cluster import RedisCluster
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.archive.archive_world import World


@pytest.fixture(scope="session")
def three_masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    cluster = RedisCluster(tmp_path_factory.mktemp("three"), appendfsync="no")
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="session")
def cluster_servers(datp_servers: Servers, three_masters: RedisCluster) -> Servers:
    return replace(datp_servers, redis_url=three_masters.url, redis_cluster=True)


@pytest.fixture
def datp(cluster_servers: Servers) -> Iterator[Kit]:
    """A kit whose state lies on the cluster, and holds together when the test is over."""
    kit = Kit(cluster_servers)
    yield kit
    assert check_all(kit.connections.live) == []
    kit.close()


@pytest.fixture
def world(datp: Kit) -> Iterator[World]:
    """With steps of every kind, and an audit of every transaction at the end."""
    made = World(datp)
    yield made
    assert made.faults() == {}
