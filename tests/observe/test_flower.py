"""Flower, asked over its own HTTP API: every hop and every step is there, with transaction ids."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from datp_tasks import Pipeline
from datp_tasks.local.ports import pick_free_port
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance

AUTH = ("datp", "a-password")


class Flower:
    def __init__(self, house: House) -> None:
        self.house = house
        port = pick_free_port()
        self.url = f"http://127.0.0.1:{port}"
        house.flower(port, f"--basic-auth={AUTH[0]}:{AUTH[1]}", "--max-tasks=10000")

    def get(self, path: str, auth: tuple[str, str] | None = AUTH) -> Any:
        return httpx.get(f"{self.url}{path}", auth=auth, timeout=10)

    def is_there(self) -> bool:
        try:
            return bool(self.get("/healthcheck").is_success)
        except httpx.TransportError:
            return False

    def tasks(self, tx_id: str) -> list[dict[str, Any]]:
        """What Flower has about a transaction, in the order in which it began."""
        found = self.get("/api/tasks?limit=10000").json().values()
        mine = [task for task in found if tx_id in str(task["args"])]
        return sorted(mine, key=lambda task: float(task["received"] or 0))

    def alive(self) -> set[str]:
        found = self.get("/api/workers?status=1").json()
        return {name.partition("@")[0] for name, lives in found.items() if lives}


@pytest.fixture(scope="module")
def flower(new_house: NewHouse) -> Flower:
    """A worker that nobody asked for events when it was started, and Flower, which asks."""
    house = new_house()
    house.use(Pipeline("warm").step("acc/mark").step("acc/mark"))
    house.use(
        Pipeline("three").step("acc/mark").step("util/map-fields", params=MAP).step("acc/mark")
    )
    house.use(
        Pipeline("fails").step("acc/mark").step("util/fixed-reply", params=FAIL).step("acc/mark")
    )
    house.use(Pipeline("fails-first").step("util/fixed-reply", params=FAIL))
    worker = house.worker()
    flower = Flower(house)
    house.wait_ready(worker)
    eventually(flower.is_there, what="Flower")

    def is_seen() -> bool:
        return len(flower.tasks(house.run("warm").tx_id)) == 2

    eventually(is_seen, within_s=30, what="the first event of a continued step")
    return flower


FAIL = {"fail": True, "note": "not today"}
MAP = {"fields": {}, "keep": True}


def done(flower: Flower, tx_id: str, count: int) -> list[dict[str, Any]]:
    def ended() -> bool:
        found = flower.tasks(tx_id)
        return len(found) >= count and all(task["state"] in ENDED for task in found)

    eventually(ended, what=f"{count} tasks of {tx_id}")
    return flower.tasks(tx_id)


ENDED = ("SUCCESS", "FAILURE")


def test_a_hop_and_each_step_that_went_on_in_the_process_are_shown(flower: Flower) -> None:
    summary = flower.house.run("three")
    assert summary.status is Status.SUCCESS, summary
    hop, *steps = done(flower, summary.tx_id, 3)
    names = ["datp.step.acc/mark", "datp.step.util/map-fields", "datp.step.acc/mark"]
    assert [task["name"] for task in (hop, *steps)] == names
    assert [task["state"] for task in (hop, *steps)] == ["SUCCESS"] * 3
    assert len({task["uuid"] for task in (hop, *steps)}) == 3
    assert {task["parent_id"] for task in steps} == {hop["uuid"]}
    assert {task["worker"] for task in steps} == {hop["worker"]}
    assert all(task["args"] == summary.tx_id and task["runtime"] > 0 for task in steps)


def test_all_transactions_of_a_vector_are_found_by_their_ids(flower: Flower) -> None:
    house = flower.house
    tx_ids = [house.submit_silently("three") for _ in range(7)]
    house.send("acc/mark", [(tx_id, 1) for tx_id in tx_ids], group="master", priority="in")
    eventually(lambda: house.all_final(tx_ids))
    shown = done(flower, tx_ids[6], 3)
    assert [re.findall(r"t\d\d-\w{32}", task["args"]) for task in shown] == [tx_ids] * 3


def test_a_step_that_failed_is_shown_as_failed_whether_first_or_continued(flower: Flower) -> None:
    for pipeline, names in (
        ("fails", ["datp.step.acc/mark", "datp.step.util/fixed-reply"]),
        ("fails-first", ["datp.step.util/fixed-reply", "datp.step.util/fixed-reply"]),
    ):
        summary = flower.house.run(pipeline)
        assert summary.status is Status.FAILED
        hop, failed = done(flower, summary.tx_id, 2)
        assert [hop["name"], failed["name"]] == names
        assert (hop["state"], failed["state"]) == ("SUCCESS", "FAILURE")
        said = f"1 of 1 transactions, first {summary.tx_id}: not today"
        assert failed["exception"] == said


def test_without_the_password_nothing_is_shown(flower: Flower) -> None:
    for path in ("/", "/api/tasks", "/api/workers", "/workers"):
        assert flower.get(path, auth=None).status_code == 401
        assert flower.get(path, auth=("datp", "wrong")).status_code == 401
    assert flower.get("/api/tasks").status_code == 200


def test_the_worker_is_shown_as_alive(flower: Flower) -> None:
    eventually(lambda: flower.alive() == {"w0"}, what="the worker being online")
