"""Redis says that a worker runs a transaction, and the worker, alive and well, does not know of it.

It comes to that when Redis loses its last writes, or when a reaper dies half-way: nobody is dead,
so nobody would ever take the transaction over.
"""

from __future__ import annotations

import pytest

from datp_tasks import Pipeline
from datp_tasks.live.live_types import Claimed
from datp_tasks.model.state import BEGIN, delta_json
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def staffed(new_house: NewHouse) -> House:
    """One worker, which never dies, and beat."""
    house = new_house()
    house.use(
        Pipeline("plain").step("acc/hold"),
        Pipeline("careful").step("acc/review"),
        Pipeline("then-pay").step("acc/hold").step("acc/pay"),
        Pipeline("then-end").step("acc/hold"),
    )
    worker = house.worker()
    house.beat()
    house.wait_ready(worker)
    return house


def claim_for_the_worker(house: House, tx_id: str, step_type: str, begin: str) -> None:
    """What is in Redis when the worker's hand-over, which it was told of, is lost again."""
    live = house.connections.live
    eventually(lambda: house.redis.zcard(live.keys.nodes), what="the node")
    node = str(house.redis.zrange(live.keys.nodes, 0, -1)[0])
    claimed = live.claim_many([(tx_id, 1)], node, step_type=step_type, begin=begin)[0]
    assert isinstance(claimed, Claimed)


def test_a_claim_that_its_worker_knows_nothing_of_is_run_again(staffed: House) -> None:
    tx_id = staffed.submit_silently("plain")
    claim_for_the_worker(staffed, tx_id, "acc/hold", delta_json(BEGIN))
    ended = staffed.client.wait(tx_id, timeout_s=15)
    assert ended.status is Status.SUCCESS
    # It had begun, as far as anybody can know, so this counts as a second try.
    assert [each["attempt"] for each in staffed.notes_about("hold", tx_id)] == [2]


def test_one_that_had_not_begun_is_in_no_doubt(staffed: House) -> None:
    tx_id = staffed.submit_silently("careful")
    claim_for_the_worker(staffed, tx_id, "acc/review", "")
    assert staffed.client.wait(tx_id, timeout_s=15).status is Status.SUCCESS
    assert len(staffed.notes_about("hold", tx_id)) == 1


@pytest.mark.parametrize("pipeline", ["then-pay", "then-end"])
def test_a_reaper_that_died_between_sql_and_redis_leaves_nothing_stuck(
    staffed: House, pipeline: str
) -> None:
    tx_id = staffed.submit(pipeline, {"gates": [pipeline]})
    staffed.wait_for_note_about("hold", tx_id)
    fence = int(staffed.fields(tx_id)["fence"])
    # It took the worker for dead, told SQL so, and died before it could tell Redis.
    assert staffed.connections.record.raise_fences([(tx_id, fence)]) == {tx_id: fence + 1}
    staffed.open_gate(pipeline)
    ended = staffed.client.wait(tx_id, timeout_s=15)
    assert ended.status is Status.SUCCESS
    assert staffed.finals_logged(tx_id) == ["success"]
    paid = staffed.sql("SELECT step_key FROM payment WHERE tx_id = :tx", tx=tx_id)
    assert len(paid) == (1 if pipeline == "then-pay" else 0)
