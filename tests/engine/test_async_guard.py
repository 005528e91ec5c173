"""An async step that does not give its event loop back, or does not let itself be cancelled.

The guard sees it like any other step that is stuck: its neighbours go on elsewhere, and when it is
beyond its limit and the grace, its process ends, so that the reaper can act.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from datp_tasks import Batch, Pipeline
from datp_tasks.engine import guard
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.engine.guarded import GuardedHop
from tests.support.eventually import eventually

Data = dict[str, Any]

LIMIT_S = 0.2
GRACE_S = 0.2
#: Many times limit and grace, for a busy machine: what is noticed at all is noticed by then.
NOTICED_S = 10.0
FOR_EVER_S = 30.0


class AsyncVector:
    """A vector of async steps; the first try of the one named `stuck` does not return."""

    def __init__(self, kit: Kit, how: str, *, timeout_s: float) -> None:
        self.kit = kit
        self.hop = GuardedHop(kit)
        self.is_stuck = threading.Event()
        self.may_end = threading.Event()
        self.began_s = 0.0
        self.ran: list[tuple[str, int]] = []

        @kit.step("t/maybe", timeout_s=timeout_s, retry={"max_attempts": 1})
        async def maybe(ctx: Any, data: Data) -> Data:
            self.ran.append((data["name"], ctx.attempt))
            if data["name"] == "stuck" and ctx.attempt == 1:
                self.began_s = time.monotonic()
                self.is_stuck.set()
                await getattr(self, how)()
            return data

        @kit.step("t/after")
        def after(ctx: Any, data: Data) -> None: ...

        kit.use(Pipeline("p").step("t/maybe").step("t/after").build())

    async def blocks(self) -> None:
        """A call that belongs into a thread: nothing else runs on this loop meanwhile."""
        self.may_end.wait(FOR_EVER_S)

    async def swallows(self) -> None:
        """The loop goes on, but no cancellation gets through."""
        while not self.may_end.is_set():
            try:
                await asyncio.to_thread(self.may_end.wait, FOR_EVER_S)
            except asyncio.CancelledError:
                continue

    async def waits(self) -> None:
        """As a step should."""
        await asyncio.to_thread(self.may_end.wait, FOR_EVER_S)

    def start(self, *names: str) -> list[str]:
        self.kit.lose_bells()
        txs = [self.kit.submit("p", {"name": name}) for name in names]
        pairs = [pair for _, rung in self.kit.send.rung for pair in rung]
        self.hop.start("t/maybe", pairs)
        assert self.is_stuck.wait(20)
        return txs

    def end(self) -> None:
        self.may_end.set()
        self.hop.join()


@pytest.fixture
def kit(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    monkeypatch.setattr(guard, "STUCK_MS", 50)
    kit = Kit(datp_servers, step_kill_grace_s=GRACE_S)
    yield kit
    kit.close()


badly = pytest.mark.parametrize("how", ["blocks", "swallows"])


@badly
def test_an_async_step_far_beyond_its_limit_ends_its_process(kit: Kit, how: str) -> None:
    vector = AsyncVector(kit, how, timeout_s=LIMIT_S)
    vector.start("stuck")
    try:
        eventually(vector.hop.was_killed, within_s=NOTICED_S)
        # Not before its time: until then it could have come back.
        assert time.monotonic() - vector.began_s >= LIMIT_S + GRACE_S
    finally:
        vector.end()


def test_an_async_vector_step_that_blocks_the_loop_ends_its_process(kit: Kit) -> None:
    """Its time limit is a task of the loop that it blocks: only the guard can see it."""
    is_stuck, may_end = threading.Event(), threading.Event()

    @kit.step("t/many", vector=True, timeout_s=LIMIT_S, retry={"max_attempts": 1})
    async def many(batch: Batch) -> None:
        if not is_stuck.is_set():
            is_stuck.set()
            may_end.wait(FOR_EVER_S)
        for item in batch:
            item.done()

    kit.use(Pipeline("p").step("t/many").build())
    kit.lose_bells()
    txs = [kit.submit("p", {}) for _ in range(2)]
    hop = GuardedHop(kit)
    hop.start("t/many", [pair for _, rung in kit.send.rung for pair in rung])
    try:
        assert is_stuck.wait(20)
        eventually(hop.was_killed, within_s=NOTICED_S)
        kit.recover()
        hop.hear()
        assert hop.statuses(txs) == [Status.SUCCESS] * 2
    finally:
        may_end.set()
        hop.join()
    hop.hear()
    assert hop.statuses(txs) == [Status.SUCCESS] * 2


@badly
def test_what_was_killed_with_its_process_is_taken_over(kit: Kit, how: str) -> None:
    vector = AsyncVector(kit, how, timeout_s=LIMIT_S)
    txs = vector.start("stuck")
    try:
        # The node beats, so as long as it lives the reaper leaves its transaction alone.
        kit.recover()
        assert vector.hop.statuses(txs) == [Status.RUNNING]
        eventually(vector.hop.was_killed, within_s=NOTICED_S)
        kit.recover()
        vector.hop.hear()
        assert vector.hop.statuses(txs) == [Status.SUCCESS]
    finally:
        vector.end()
    # What the first try says when it comes back after all does not count.
    vector.hop.hear()
    assert vector.ran == [("stuck", 1), ("stuck", 2)]
    assert vector.hop.statuses(txs) == [Status.SUCCESS]


@badly
def test_the_neighbours_of_a_stuck_async_step_go_on_elsewhere(kit: Kit, how: str) -> None:
    vector = AsyncVector(kit, how, timeout_s=60)
    txs = vector.start("before", "stuck", "behind")

    def neighbours_have_ended() -> bool:
        vector.hop.looks()
        vector.hop.hear()
        return vector.hop.statuses(txs) == [Status.SUCCESS, Status.RUNNING, Status.SUCCESS]

    try:
        eventually(neighbours_have_ended, within_s=NOTICED_S)
        assert vector.hop.kills == 0
    finally:
        vector.end()
    vector.hop.hear()
    assert vector.hop.statuses(txs) == [Status.SUCCESS] * 3
    # What was handed over does not run here as well, once the loop is free again.
    assert sorted(vector.ran) == [("before", 1), ("behind", 1), ("stuck", 1)]


@badly
def test_neighbours_are_out_of_the_process_before_it_is_killed(kit: Kit, how: str) -> None:
    vector = AsyncVector(kit, how, timeout_s=LIMIT_S)
    txs = vector.start("before", "stuck", "behind")
    try:
        eventually(vector.hop.was_killed, within_s=NOTICED_S)
        vector.hop.hear()
        assert vector.hop.statuses(txs) == [Status.SUCCESS, Status.RUNNING, Status.SUCCESS]
    finally:
        vector.end()
    assert sorted(vector.ran) == [("before", 1), ("behind", 1), ("stuck", 1)]


def test_an_async_step_that_waits_within_its_limit_is_left_alone(kit: Kit) -> None:
    vector = AsyncVector(kit, "waits", timeout_s=60)
    [tx_id] = vector.start("stuck")
    looked_until_s = time.monotonic() + LIMIT_S + GRACE_S
    try:
        eventually(lambda: vector.hop.was_killed() or time.monotonic() > looked_until_s)
        assert vector.hop.kills == 0
        assert kit.status(tx_id).status is Status.RUNNING
    finally:
        vector.end()
    vector.hop.hear()
    assert kit.status(tx_id).status is Status.SUCCESS


def test_an_async_step_that_obeys_its_limit_costs_no_process(kit: Kit) -> None:
    vector = AsyncVector(kit, "waits", timeout_s=LIMIT_S)
    [tx_id] = vector.start("stuck")
    try:
        eventually(lambda: vector.hop.was_killed() or kit.status(tx_id).is_final)
        vector.hop.join()
        # Nor afterwards, when the hop is over and its step long beyond the limit.
        looked_until_s = time.monotonic() + LIMIT_S + GRACE_S
        eventually(lambda: vector.hop.was_killed() or time.monotonic() > looked_until_s)
    finally:
        vector.end()
    assert vector.hop.kills == 0
    note = f"step 1 of p (t/maybe): the step ran longer than {LIMIT_S:g} s"
    assert kit.status(tx_id).note == note


def test_the_event_loop_of_a_worker_ends_with_it(kit: Kit) -> None:
    """A thread pool that retires workers would else collect a thread for each."""
    before = set(threading.enumerate())

    @kit.step("t/async")
    async def asynchronous(ctx: Any, data: Data) -> None: ...

    kit.use(Pipeline("a").step("t/async").build())
    assert kit.run("a", {}).status is Status.SUCCESS
    [loop] = [each for each in threading.enumerate() if each not in before]
    assert loop.name == "datp-event-loop"
    kit.process.worker.close()
    loop.join(NOTICED_S)
    assert not loop.is_alive()
