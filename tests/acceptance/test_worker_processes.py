"""The programs an operator starts, together: workers of two groups, beat and Flower."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx
import pytest

from datp_tasks import Pipeline, failpoints
from datp_tasks.local.ports import pick_free_port
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance


@dataclass(frozen=True)
class System:
    house: House
    flower_url: str


@pytest.fixture(scope="module")
def system(new_house: NewHouse) -> System:
    """Workers for master and kyc, one worker for both north and south, beat and Flower."""
    house = new_house()
    port = pick_free_port()
    workers = [house.worker(groups) for groups in ("master", "kyc", "north,south")]
    house.beat()
    house.flower(port)
    house.wait_ready(*workers)
    return System(house, f"http://127.0.0.1:{port}")


def there_and_back(name: str, *, here: str, there: str) -> tuple[Pipeline, Pipeline]:
    """A pipeline that calls another one in the middle, and that other one."""
    child = Pipeline(f"{name}-child", group=there, startable=False)
    child.step("acc/mark", params={"topic": name, "word": "child"})
    parent = Pipeline(name, group=here)
    parent.step("acc/mark", params={"topic": name, "word": "before"})
    parent.step("util/child-pipeline", params={"pipeline": f"{name}-child"})
    parent.step("acc/mark", params={"topic": name, "word": "after"})
    return child, parent


def test_a_transaction_goes_to_another_group_and_comes_back(system: System) -> None:
    house = system.house
    house.use(*there_and_back("cross", here="master", there="kyc"))
    tx_ids = [house.submit("cross") for _ in range(20)]
    for tx_id in tx_ids:
        summary = house.client.wait(tx_id, timeout_s=20)
        assert summary.status is Status.SUCCESS, summary
        assert summary.output == {"words": ["before", "child", "after"]}
    notes = house.notes("cross")
    assert len(notes) == 60
    pids = {word: {each["pid"] for each in notes if each["word"] == word} for word in WORDS}
    assert pids["before"] == pids["after"]
    assert pids["before"].isdisjoint(pids["child"])


WORDS = ("before", "child", "after")


def test_a_worker_of_two_groups_does_both_without_a_message_between(system: System) -> None:
    house = system.house
    house.use(*there_and_back("both", here="north", there="south"))
    summary = house.run("both")
    assert summary.output == {"words": ["before", "child", "after"]}
    assert len({each["pid"] for each in house.notes("both")}) == 1
    # One bell brought it here, and nobody had to ring another one.
    assert house.fields(summary.tx_id)["sequence"] == "1"


def test_beat_wakes_a_sleeper(system: System) -> None:
    house = system.house
    house.use(Pipeline("nap").step("util/delay", params={"seconds": 1}))
    tx_id = house.submit("nap")
    eventually(lambda: house.client.status(tx_id).status is Status.SLEEPING)
    summary = house.client.wait(tx_id, timeout_s=10)
    assert summary.status is Status.SUCCESS
    assert summary.completed_at is not None
    assert 1.0 <= (summary.completed_at - summary.created_at).total_seconds() < 5.0


def test_beat_finds_a_lost_bell_and_a_row_that_never_reached_redis(system: System) -> None:
    house = system.house
    house.use(Pipeline("lost").step("acc/mark", params={"word": "found"}))
    unheard = house.submit_silently("lost")
    failpoints.arm("submit.after_accept", "raise")
    with pytest.raises(failpoints.FailpointError):
        house.client.submit("lost", {}, owner="o", external_id="never-placed")
    failpoints.disarm_all()
    unplaced = house.client.find("o", "never-placed").tx_id
    assert not house.fields(unplaced)
    for tx_id in (unheard, unplaced):
        assert house.client.wait(tx_id, timeout_s=10).output == {"words": ["found"]}


def test_flower_lists_the_workers_and_their_queues(system: System) -> None:
    def queues() -> dict[str, set[str]]:
        try:
            found = httpx.get(f"{system.flower_url}/api/workers?refresh=1", timeout=10).json()
        except httpx.TransportError:
            return {}
        return {
            name.partition("@")[0]: {queue["name"] for queue in about.get("active_queues", ())}
            for name, about in found.items()
        }

    expected = {"w0": {"master"}, "w1": {"kyc"}, "w2": {"north", "south"}}
    eventually(lambda: queues() == expected, what="the list of workers")


def test_a_new_version_is_picked_up_while_a_sleeper_keeps_its_own(system: System) -> None:
    house = system.house

    def version(word: str) -> tuple[Pipeline, Pipeline]:
        said = {"topic": "said", "word": word}
        inner = Pipeline("inner", group="kyc", startable=False).step("acc/mark", params=said)
        outer = Pipeline("outer").step("util/wait", params={"switch": "go"})
        return inner, outer.step("acc/mark", params=said).step("acc/call", params=CALL_INNER)

    def words() -> list[str]:
        tx_id = house.submit("outer")
        house.client.set_switch(tx_id, "go", True)
        output = house.client.wait(tx_id, timeout_s=10).output
        assert output is not None
        return list(output["words"])

    house.use(*version("old"))
    assert words() == ["old", "old"]
    sleeper = house.submit("outer")
    eventually(lambda: house.client.status(sleeper).status is Status.SLEEPING)
    house.use(*version("new"))
    changed_s = time.monotonic()
    eventually(lambda: words() == ["new", "new"], within_s=10, what="the new version")
    assert time.monotonic() - changed_s < 2 * house.settings.pipeline_reload_s + 3
    house.client.set_switch(sleeper, "go", True)
    # What it calls is chosen when it calls; its own steps are those it began with.
    assert house.client.wait(sleeper, timeout_s=10).output == {"words": ["old", "new"]}


CALL_INNER = {"pipeline": "inner"}
