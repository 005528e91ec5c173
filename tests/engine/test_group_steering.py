"""Node groups act on running workers: size of the pool, stopped, going on, and new ones."""

from __future__ import annotations

import re

import pytest

from datp_tasks import Pipeline
from datp_tasks.live.nodes import Node, NodeRegister
from datp_tasks.local.processes import ManagedProcess
from datp_tasks.model.actor import Actor
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House, log_of

pytestmark = pytest.mark.acceptance


def set_group(house: House, name: str, *, tell: bool = False, **values: int | None) -> None:
    house.connections.groups.set(name, values, actor=Actor(name="test"))
    if tell:
        house.celery.control.broadcast("datp_groups")


def nodes(house: House, group: str) -> list[Node]:
    settings = house.settings
    register = NodeRegister(
        house.connections.live, stale_ms=settings.node_stale_ms, grace_ms=settings.node_grace_ms
    )
    return [node for node in register.nodes() if node.group == group]


def sizes_said(worker: ManagedProcess) -> list[str]:
    return re.findall(r"the pool has (\d+) processes now", log_of(worker))


def cut_off_consumers(house: House) -> None:
    """Every worker that waits for messages loses its connection to the broker."""
    for client in house.redis.client_list():
        if client["cmd"] == "brpop":
            house.redis.client_kill_filter(_id=client["id"])


def test_concurrency_grows_and_shrinks_the_pool_of_a_running_worker(house: House) -> None:
    worker = house.worker()
    house.wait_ready(worker)
    eventually(lambda: len(nodes(house, "master")) == 1)
    set_group(house, "master", concurrency=3)
    # Nothing was broadcast: the worker finds it by itself.
    eventually(lambda: len(nodes(house, "master")) == 3, what="the larger pool")
    set_group(house, "master", tell=True, concurrency=1)
    eventually(lambda: len(nodes(house, "master")) == 1, what="the smaller pool")
    set_group(house, "master", concurrency=None)
    assert sizes_said(worker) == ["3", "1"]
    # Those that left did so in order: nobody misses them.
    register = house.redis.zcard(house.connections.live.keys.in_shard("nodes", "registeredZ"))
    assert register == 1


def test_a_stopped_group_lets_its_work_queue_up_and_goes_on_later(house: House) -> None:
    house.use(Pipeline("later", group="kyc").step("acc/mark", params={"word": "done"}))
    first = house.worker("kyc,north")
    house.wait_ready(first)
    assert house.run("later").status is Status.SUCCESS
    set_group(house, "kyc", concurrency=0)
    eventually(lambda: "group kyc is stopped" in log_of(first))
    waiting = [house.submit("later") for _ in range(5)]
    # Redis loses what it knew of the groups: one who starts now must ask SQL.
    house.redis.delete(house.connections.live.keys.outside("nodeGroups"))
    second = house.worker("kyc")
    house.wait_ready(second)
    eventually(lambda: len(nodes(house, "kyc")) == 2)
    house.use(Pipeline("north", group="north").step("acc/mark", params={"word": "up"}))
    assert house.run("north").output == {"words": ["up"]}
    assert {house.client.status(tx_id).status for tx_id in waiting} == {Status.QUEUED}
    assert len(house.notes("mark")) == 2
    cut_off_consumers(house)
    eventually(lambda: "Connection to broker lost" in log_of(first))
    assert house.run("north").output == {"words": ["up"]}
    assert {house.client.status(tx_id).status for tx_id in waiting} == {Status.QUEUED}
    set_group(house, "kyc", concurrency=2)
    eventually(lambda: house.all_final(waiting), what="the end of those that waited")
    assert [len(house.notes_about("mark", tx_id)) for tx_id in waiting] == [1] * 5
    # Each of the two workers has two processes now.
    eventually(lambda: len(nodes(house, "kyc")) == 4, what="the larger pools")


def test_a_busy_pool_shrinks_when_its_work_is_done(house: House) -> None:
    house.use(Pipeline("held").step("acc/hold"))
    worker = house.worker(concurrency=2)
    house.wait_ready(worker)
    held = [house.submit("held", {"gates": [f"gate{number}"]}) for number in range(2)]
    for tx_id in held:
        house.wait_for_note_about("hold", tx_id)
    set_group(house, "master", concurrency=1)
    eventually(lambda: "not as its groups say yet" in log_of(worker))
    assert len(nodes(house, "master")) == 2
    for number in range(2):
        house.open_gate(f"gate{number}")
    eventually(lambda: house.all_final(held))
    eventually(lambda: len(nodes(house, "master")) == 1, what="the smaller pool")
    assert [len(house.notes_about("held", tx_id)) for tx_id in held] == [1, 1]
