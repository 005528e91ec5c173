"""A Redis Cluster of three masters for the state; the rest is as in every other ring."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datp_tasks.local.redis_cluster import RedisCluster


@pytest.fixture(scope="session")
def three_masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    cluster = RedisCluster(tmp_path_factory.mktemp("three"), appendfsync="no")
    cluster.start()
    yield cluster
    cluster.destroy()
