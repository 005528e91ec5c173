"""Real workers, beat and a client with their state on a Redis Cluster of three masters."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from datp_tasks import Pipeline
from datp_tasks.live.invariants import check_all
from datp_tasks.local.redis_cluster import RedisCluster
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance

MANY = 40


@pytest.fixture(scope="module")
def three_masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    cluster = RedisCluster(tmp_path_factory.mktemp("cluster"), appendfsync="no")
    cluster.start()
    yield cluster
    cluster.destroy()


def test_workers_run_wake_and_take_over_what_lies_on_three_masters(
    new_house: NewHouse, three_masters: RedisCluster, acceptance_redis: RedisServer
) -> None:
    house = new_house(
        redis_url=three_masters.url, redis_cluster="on", broker_url=acceptance_redis.url_of(63)
    )
    house.use(
        Pipeline("quick").step("acc/mark", params={"word": "done"}),
        Pipeline("nap").step("util/delay", params={"seconds": 1}),
        Pipeline("held").step("acc/hold"),
    )
    doomed = house.worker()
    house.beat()
    house.wait_ready(doomed)
    quick = [house.submit("quick") for _ in range(MANY)]
    naps = [house.submit("nap") for _ in range(MANY)]
    for tx_id in (*quick, *naps):
        assert house.client.wait(tx_id, timeout_s=30).status is Status.SUCCESS
    # The worker dies in the middle of a step; another one takes over.
    held = house.submit("held", {"gates": ["never"]})
    house.wait_for_note_about("hold", held)
    doomed.send_signal(signal.SIGKILL)
    doomed.kill()
    heir = house.worker()
    house.wait_ready(heir)
    summary = house.client.wait(held, timeout_s=30)
    assert summary.output is not None
    assert summary.output["attempt"] == 2
    live = house.connections.live
    eventually(lambda: not live.sizes()["processingZ"], what="rest")
    assert check_all(live) == []
