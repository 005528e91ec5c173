"""Task events of continued steps: sent while somebody wants them, and not otherwise."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.observe.task_events import SharedFlag
from tests.support.eventually import eventually
from tests.support.house import House

pytestmark = pytest.mark.acceptance


class Listener:
    """Hears every event of every worker, as Flower does."""

    def __init__(self, house: House) -> None:
        self.events: list[dict[str, Any]] = []
        self._app = house.celery
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with self._app.connection_for_read() as connection:
            receiver = self._app.events.Receiver(connection, handlers={"*": self.events.append})
            with receiver.consumer_context(wakeup=False) as (own, _, _):
                while not self._ended.is_set():
                    try:
                        own.drain_events(timeout=0.2)
                    except TimeoutError:
                        continue

    def close(self) -> None:
        self._ended.set()
        self._thread.join(timeout=5)

    def kinds(self) -> set[str]:
        return {event["type"] for event in list(self.events)}

    def about(self, tx_id: str) -> list[dict[str, Any]]:
        ids = [event["uuid"] for event in list(self.events) if event.get("args") == tx_id]
        return [event for event in list(self.events) if event.get("uuid") in ids]


@pytest.fixture
def listener(house: House) -> Iterator[Listener]:
    made = Listener(house)
    yield made
    made.close()


def test_events_follow_those_who_want_them(house: House, listener: Listener) -> None:
    house.use(Pipeline("two").step("acc/mark").step("acc/mark"))
    house.wait_ready(house.worker())
    eventually(lambda: "worker-heartbeat" in listener.kinds(), what="a heartbeat")
    house.run("two")
    beats = len(listener.events)
    # Once the next heartbeat is here, an event of the steps would be here, too.
    eventually(lambda: len(listener.events) > beats + 1)
    assert {kind for kind in listener.kinds() if kind.startswith("task-")} == set()

    house.celery.control.enable_events()

    def is_shown() -> bool:
        tx_id = house.run("two").tx_id
        eventually(lambda: len(listener.about(tx_id)) >= 3)
        return len({event["uuid"] for event in listener.about(tx_id)}) == 2

    eventually(is_shown, what="the events of a continued step")
    tx_id = house.run("two").tx_id
    eventually(lambda: len(listener.about(tx_id)) == 6, what="all events of one hop")
    hop, step = dict.fromkeys(event["uuid"] for event in listener.about(tx_id))
    of_step = [event for event in listener.about(tx_id) if event["uuid"] == step]
    assert [event["type"] for event in of_step] == ["task-received", "task-started", SUCCEEDED]
    assert (of_step[0]["parent_id"], of_step[0]["root_id"]) == (hop, hop)
    assert [event["timestamp"] for event in of_step] == sorted(
        event["timestamp"] for event in of_step
    )


SUCCEEDED = "task-succeeded"


def test_a_flag_that_is_shared_is_seen_by_a_child() -> None:
    import os

    flag = SharedFlag()
    assert not flag
    child = os.fork()
    if child == 0:
        flag.set(True)
        os._exit(0)
    os.waitpid(child, 0)
    assert flag
    flag.set(False)
    assert not flag
