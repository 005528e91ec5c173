"""Bells that are doubled, late, forged or garbage, sent as real messages: nothing changes."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.local.processes import ManagedProcess
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import STEPS, House, log_of
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance

EXTRA_STEPS = "tests.acceptance.extra_steps"
STEP = "acc/mark"
#: Looks like a transaction id; there is none of that name.
STRANGER = "t03-" + "0" * 32


class Listener:
    """A house with one worker that listens to everything that the tests shout."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.worker: ManagedProcess = house.worker(concurrency=1)
        house.beat()
        house.use(
            Pipeline("plain").step(STEP),
            Pipeline("waits").step(STEP).step("util/wait", params={"switch": "go"}).step(STEP),
        )
        house.wait_ready(self.worker)

    def bell(self, *pairs: Any, step: str = STEP) -> None:
        """What the engine would send, with any pairs in it."""
        self.house.celery.send_task(
            f"datp.step.{step}", args=(pairs,), queue="master", priority=6, argsrepr="?"
        )

    def message(self, body: bytes, *, task: str = f"datp.step.{STEP}", **options: Any) -> None:
        """A message as Celery sends it, around any body."""
        headers = {"task": task, "id": str(uuid.uuid4()), "lang": "py", "argsrepr": "?"}
        headers |= options.pop("headers", {})
        kind = {"content_type": "application/json", "content_encoding": "utf-8"} | options
        with self.house.celery.connection_for_write() as connection:
            connection.Producer().publish(
                body, exchange="", routing_key="master", headers=headers, priority=6, **kind
            )

    def everything_was_heard(self) -> int:
        """Send a transaction after all that went before; the process that ran it."""
        summary = self.house.run("plain")
        assert summary.status is Status.SUCCESS
        pids = [each["pid"] for each in self.house.notes("mark") if each["tx"] == summary.tx_id]
        assert len(pids) == 1
        return int(pids[0])


@pytest.fixture(scope="module")
def listener(new_house: NewHouse) -> Listener:
    return Listener(new_house())


def runs_of(house: House, tx_id: str) -> int:
    return sum(each["tx"] == tx_id for each in house.notes("mark"))


def test_doubled_late_and_forged_bells_change_nothing(listener: Listener) -> None:
    house = listener.house
    sleeper = house.submit("waits")
    eventually(lambda: house.client.status(sleeper).status is Status.SLEEPING)
    ended = house.run("plain").tx_id
    before = {tx_id: house.fields(tx_id) for tx_id in (sleeper, ended)}

    for sequence in (0, 1, 1, 2, 3, -1, 10**30, True):
        listener.bell((sleeper, sequence), (ended, sequence))
    listener.bell((STRANGER, 1))
    listener.bell(("t99-" + "f" * 32, 1))
    listener.bell(*[("t03-" + uuid.uuid4().hex, 1) for _ in range(5_000)])
    listener.bell(*[(sleeper, 1)] * 5_000)
    # For other steps than the one it is at.
    listener.bell((sleeper, 1), step="util/wait")
    listener.bell((sleeper, 1), step="util/delay")

    listener.everything_was_heard()
    assert {tx_id: house.fields(tx_id) for tx_id in (sleeper, ended)} == before
    assert not house.fields(STRANGER)
    house.client.set_switch(sleeper, "go", True)
    assert house.client.wait(sleeper, timeout_s=10).status is Status.SUCCESS
    assert runs_of(house, sleeper) == 2
    assert house.finals_logged(sleeper) == ["success"]
    assert house.finals_logged(ended) == ["success"]


def test_a_queued_transaction_runs_once_however_often_its_bell_is_rung(listener: Listener) -> None:
    house = listener.house
    tx_ids = [house.submit_silently("plain") for _ in range(20)]
    for _ in range(5):
        for tx_id in tx_ids:
            listener.bell((tx_id, 1))
        listener.bell(*[(tx_id, 1) for tx_id in tx_ids])
    listener.everything_was_heard()
    assert house.all_final(tx_ids)
    assert [runs_of(house, tx_id) for tx_id in tx_ids] == [1] * 20


def test_a_late_bell_does_not_start_what_has_been_queued_anew(house: House) -> None:
    """Without beat, so that nobody rings the right bell meanwhile."""
    house.use(
        Pipeline("waits").step("util/wait", params={"switch": "go"}), Pipeline("p").step(STEP)
    )
    house.wait_ready(house.worker())
    tx_id = house.submit("waits")
    eventually(lambda: house.client.status(tx_id).status is Status.SLEEPING)
    assert house.silent.set_switch(tx_id, "go", True)
    queued = house.fields(tx_id)
    assert (queued["status"], queued["sequence"]) == ("queued", "2")
    for sequence in (1, 0, 3, -2, 22, True):
        house.send("util/wait", [(tx_id, sequence)], group="master", priority="in")
    assert house.run("p").status is Status.SUCCESS
    assert house.fields(tx_id) == queued
    house.send("util/wait", [(tx_id, 2)], group="master", priority="in")
    assert house.client.wait(tx_id, timeout_s=10).status is Status.SUCCESS


GARBAGE_ARGUMENTS: tuple[Any, ...] = (
    [],
    [None],
    [5],
    ["text"],
    [{"tx": 1}],
    [[]],
    [[1, 2, 3]],
    [[[]]],
    [[["x"]]],
    [[["x", 1]]],
    [[[1, "x"]]],
    [[[STRANGER, "1"]]],
    [[[STRANGER, 1.5]]],
    [[[STRANGER, None]]],
    [[[STRANGER, 1, 1]]],
    [[[[STRANGER], [1]]]],
    [[{STRANGER: 1}]],
    [[["\ud800" + STRANGER, 1]]],
    [[["t٠٣-" + "0" * 32, 1]]],
    [[[STRANGER, 1]], "more", 3],
)
GARBAGE_BODIES: tuple[bytes, ...] = (
    *(json.dumps([arguments, {}, {}]).encode() for arguments in GARBAGE_ARGUMENTS),
    b'[[], {"pairs": 5}, {}]',
    b'[[[]], {"pairs": []}, {}]',
    b'[[], {"self": 1, "anything": {"else": []}}, {}]',
    b"[5, {}, {}]",
    b'["text", {}, {}]',
    b"[[], 5, {}]",
    b"[[], {}, 5]",
    b'[[], {}, {"callbacks": 5, "chord": 5, "chain": "x", "errbacks": {}}]',
    b"[[], {}]",
    b"[]",
    b"5",
    b"null",
    b'"text"',
    b'{"args": []}',
    b"{",
    b"",
    b"\xff\xfe not even text",
    b"[" * 5_000,
    b"[[[[1" + b"0" * 5_000 + b"]]], {}, {}]",
)
GARBAGE_HEADERS: tuple[dict[str, Any], ...] = (
    {"id": None},
    {"id": 5},
    {"task": None},
    {"task": []},
    {"task": {"name": 1}},
    {"lang": None, "origin": 5, "root_id": [], "parent_id": {}},
    {"expires": "yesterday"},
    {"expires": 5},
    {"timelimit": "x"},
    {"timelimit": [0.001, 0.001]},
    {"timelimit": 7},
    {"eta": "never"},
    {"eta": "2999-01-01T00:00:00"},
    {"retries": "many"},
    {"shadow": 5, "group": 5, "ignore_result": "x", "argsrepr": 5},
)


def test_garbage_neither_kills_the_worker_nor_loses_anything(listener: Listener) -> None:
    house = listener.house
    child = listener.everything_was_heard()
    main = listener.worker.pid
    waiting = [house.submit_silently("plain") for _ in range(5)]
    for body in GARBAGE_BODIES:
        listener.message(body)
    listener.message(b"[[], {}, {}]", content_type="application/x-python-serialize")
    listener.message(b"[[], {}, {}]", content_type="no/such-type")
    listener.message(b"[[], {}, {}]", content_encoding="no-such-encoding")
    for headers in GARBAGE_HEADERS:
        listener.message(b"[[], {}, {}]", headers=headers)
    listener.message(b"[[], {}, {}]", task="no.such.task")
    listener.message(b"[[], {}, {}]", task="datp.step.nope")
    listener.message(b"garbage", task="datp.step.nope")
    listener.bell((waiting[0], 1), step="nope")
    eventually(
        lambda: (
            house.all_final(waiting[:1])  # The reconciler may have been quicker.
            or "nope" in (house.client.status(waiting[0]).note or "")
        ),
        what="the note",
    )
    for tx_id in waiting:
        listener.bell((tx_id, 1), ("garbage", 1), None, [tx_id])
    assert listener.everything_was_heard() == child, "the process had to be replaced"
    assert listener.worker.pid == main
    assert "exited with" not in log_of(listener.worker)
    assert house.all_final(waiting)
    assert [runs_of(house, tx_id) for tx_id in waiting] == [1] * 5


def test_a_step_that_no_worker_has_waits_for_one_that_has_it(listener: Listener) -> None:
    house = listener.house
    house.use(
        Pipeline("exotic-first").step("extra/exotic").step(STEP),
        Pipeline("exotic-later").step(STEP).step("extra/exotic"),
    )
    first, later = house.submit("exotic-first"), house.submit("exotic-later")

    def notes() -> list[str]:
        found = [house.client.status(tx_id) for tx_id in (first, later)]
        assert all(each.status in (Status.QUEUED, Status.RUNNING) for each in found), found
        return [each.note or "" for each in found]

    eventually(lambda: all("extra/exotic" in each for each in notes()), what="the notes")
    # It is rung again and again meanwhile, and refused as often.
    house.wait_ready(house.worker(steps=f"{STEPS},{EXTRA_STEPS}"))
    for tx_id in (first, later):
        summary = house.client.wait(tx_id, timeout_s=20)
        assert summary.status is Status.SUCCESS
        assert summary.note is None
    assert [runs_of(house, tx_id) for tx_id in (first, later)] == [1, 1]
    assert sorted(each["tx"] for each in house.notes("exotic")) == sorted([first, later])
