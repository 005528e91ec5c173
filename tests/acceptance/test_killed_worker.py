"""kill -9 of a worker, main process and children, in the middle of its steps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary
from tests.support.eventually import eventually
from tests.support.house import House
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance

#: Noticing takes 1.3 s with the settings of a house; the rest is for a busy machine.
BACK_WITHIN_S = 8.0
LIMIT_S = 6.0
IN_VECTOR = 5
#: The place in the vector of the one that is running when the worker dies.
HELD = 2
ANSWERS = ("done", "not-done", "unknown")


@dataclass
class Aftermath:
    """What is left when the worker is dead and another one has looked after its work."""

    house: House
    plain: str
    asked: dict[str, str]
    vector: list[str]
    #: From the kill to the second try of the plain one.
    seconds: float

    def status(self, tx_id: str) -> Summary:
        return self.house.client.status(tx_id)

    def tries(self, tx_id: str) -> list[dict[str, Any]]:
        return self.house.notes_about("hold", tx_id)


@pytest.fixture(scope="module")
def aftermath(new_house: NewHouse) -> Aftermath:
    house = new_house()
    steps = {"plain": "acc/hold", "asked": "acc/ask", "reviewed": "acc/review"}
    # What must not run twice is taken over only when its time limit is over.
    limits = {"plain": None, "asked": LIMIT_S, "reviewed": LIMIT_S}
    house.use(
        *(
            Pipeline(name, group="doomed").step(step, timeout_s=limits[name])
            for name, step in steps.items()
        )
    )
    doomed = house.worker("doomed", concurrency=5)
    # This one cannot take the first tries: it listens to that group only after the kill.
    heir = house.worker("master")
    house.beat()
    house.wait_ready(doomed, heir)

    gate = {"gates": ["never"]}
    plain = house.submit("plain", gate)
    asked = {answer: house.submit("asked", gate | {"answer": answer}) for answer in ANSWERS}
    vector = [
        house.submit_silently("reviewed", gate if place == HELD else {})
        for place in range(IN_VECTOR)
    ]
    house.send("acc/review", [(tx, 1) for tx in vector], group="doomed", priority="in")
    for tx_id in (plain, *asked.values(), vector[HELD]):
        house.wait_for_note_about("hold", tx_id)
    doomed.kill()
    killed_s = time.monotonic()
    house.celery.control.add_consumer("doomed")
    house.wait_for_note_about("hold", plain, number=2)
    seconds = time.monotonic() - killed_s
    made = Aftermath(house, plain, asked, vector, seconds)
    eventually(lambda: all(has_come_to_rest(made.status(tx)) for tx in all_of(made)))
    return made


def all_of(aftermath: Aftermath) -> list[str]:
    return [aftermath.plain, *aftermath.asked.values(), *aftermath.vector]


def has_come_to_rest(summary: Summary) -> bool:
    return summary.is_final or summary.status is Status.IN_DOUBT


def test_a_plain_step_is_run_again_soon_with_the_same_key(aftermath: Aftermath) -> None:
    first, second = aftermath.tries(aftermath.plain)
    assert first["key"] == second["key"] == f"{aftermath.plain}:0"
    assert (first["attempt"], second["attempt"]) == (1, 2)
    ended = aftermath.status(aftermath.plain)
    assert ended.status is Status.SUCCESS
    assert ended.output == {"pid": second["pid"], "attempt": 2}
    assert aftermath.seconds < BACK_WITHIN_S


def test_a_step_under_review_is_in_doubt_and_says_so(aftermath: Aftermath) -> None:
    held = aftermath.status(aftermath.vector[HELD])
    assert held.status is Status.IN_DOUBT
    assert "a person must decide" in (held.note or "")
    assert len(aftermath.tries(held.tx_id)) == 1


def test_its_neighbours_in_the_vector_are_not_in_doubt(aftermath: Aftermath) -> None:
    neighbours = [tx for place, tx in enumerate(aftermath.vector) if place != HELD]
    found = [aftermath.status(tx_id).status for tx_id in neighbours]
    assert found == [Status.SUCCESS] * len(neighbours)
    # And none of them was run twice: what was done before the crash had been written down.
    assert [len(aftermath.tries(tx_id)) for tx_id in neighbours] == [1] * len(neighbours)


def test_a_step_with_a_probe_does_what_the_probe_says(aftermath: Aftermath) -> None:
    ended = {answer: aftermath.status(tx_id) for answer, tx_id in aftermath.asked.items()}
    assert ended["done"].status is Status.SUCCESS
    assert ended["done"].output == {"probed": True}
    assert ended["not-done"].status is Status.SUCCESS
    assert ended["not-done"].output is not None
    assert ended["not-done"].output["attempt"] == 2
    assert ended["unknown"].status is Status.IN_DOUBT
    tries = {answer: len(aftermath.tries(tx_id)) for answer, tx_id in aftermath.asked.items()}
    assert tries == {"done": 1, "not-done": 2, "unknown": 1}
    for tx_id in aftermath.asked.values():
        assert len(aftermath.house.notes_about("probe", tx_id)) == 1


def test_every_end_is_logged_once(aftermath: Aftermath) -> None:
    for tx_id in all_of(aftermath):
        status = aftermath.status(tx_id).status
        expected = [status] if status.is_final else []
        assert aftermath.house.finals_logged(tx_id) == expected
