"""While one step is stuck its neighbours go on; if it stays so, its process must end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.engine import guard
from datp_tasks.engine.guard import Guard
from datp_tasks.engine.orphaned_claims import OrphanedClaims
from datp_tasks.errors import StepTimeout
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.model.journal import Entry
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.eventually import eventually

Data = dict[str, Any]


class Stuck:
    """A vector of transactions in a thread of its own; those named `stuck` do not return."""

    def __init__(self, kit: Kit, *, on_crash: str = "rerun", timeout_s: float = 60) -> None:
        self.kit = kit
        self.may_end = threading.Event()
        self.is_stuck = threading.Event()
        self.ran: list[tuple[str, int]] = []
        self.kills: list[int] = []

        @kit.step("t/maybe", timeout_s=timeout_s, on_crash=on_crash, retry={"max_attempts": 1})
        def maybe(ctx: Any, data: Data) -> Data:
            self.ran.append((data["name"], ctx.attempt))
            if data["name"] == "stuck":
                self.is_stuck.set()
                while not self.may_end.is_set():
                    try:
                        self.may_end.wait(20)
                    except StepTimeout:
                        # As badly behaved as a library that swallows everything.
                        continue
            return data

        @kit.step("t/after")
        def after(ctx: Any, data: Data) -> None: ...

        kit.use(Pipeline("p").step("t/maybe").step("t/after").build())

    def start(self, *names: str) -> list[str]:
        kit = self.kit
        kit.lose_bells()
        txs = [kit.submit("p", {"name": name}) for name in names]
        pairs = [pair for _, rung in kit.send.rung for pair in rung]
        self.thread = threading.Thread(target=self._hop, args=(pairs,))
        self.thread.start()
        assert self.is_stuck.wait(20)
        # From here on this thread is another worker, which hears the bells that are rung.
        kit.lose_bells(False)
        return txs

    def _hop(self, pairs: list[tuple[str, int]]) -> None:
        worker = self.kit.process.worker
        free = partial(self.kit.connections.recovery.take_over.from_node, worker.node)
        orphans = OrphanedClaims(self.kit.connections.live, worker.hop, worker.node, free)
        self.guard = Guard(
            self.kit.settings, worker.hop, orphans, kill=lambda: self.kills.append(1)
        )
        self.kit.celery.tasks["datp.step.t/maybe"].apply_async(args=(pairs,))

    def statuses(self, txs: list[str]) -> list[Status]:
        return [self.kit.status(tx).status for tx in txs]

    def end(self) -> None:
        self.may_end.set()
        self.thread.join(20)
        assert not self.thread.is_alive()


def entries(kit: Kit, tx_id: str) -> list[Entry]:
    return ArchiveFeed(kit.connections.live).waiting_entries([tx_id])[tx_id]


@pytest.fixture
def kit(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    monkeypatch.setattr(guard, "STUCK_MS", 50)
    kit = Kit(datp_servers, step_kill_grace_s=0.2)
    yield kit
    kit.close()


def test_the_neighbours_of_a_stuck_step_go_on_elsewhere(kit: Kit) -> None:
    stuck = Stuck(kit)
    txs = stuck.start("before", "stuck", "behind")
    try:
        eventually(stuck.guard.look)
        assert stuck.statuses(txs) == [Status.SUCCESS, Status.RUNNING, Status.SUCCESS]
        assert not stuck.guard.look()
    finally:
        stuck.end()
    assert stuck.statuses(txs) == [Status.SUCCESS] * 3
    assert stuck.ran == [("before", 1), ("stuck", 1), ("behind", 1)]


def test_neighbours_that_must_not_run_twice_are_not_in_doubt(kit: Kit) -> None:
    stuck = Stuck(kit, on_crash="review")
    txs = stuck.start("before", "stuck", "behind")
    try:
        # Each is written down before the next one begins.
        assert [entry.kind for entry in entries(kit, txs[0])] == ["claim", "step", "step"]
        eventually(stuck.guard.look)
        kit.recover()
        assert stuck.statuses(txs) == [Status.SUCCESS, Status.RUNNING, Status.SUCCESS]
    finally:
        stuck.end()
    kit.recover()
    assert stuck.statuses(txs) == [Status.SUCCESS] * 3
    assert stuck.ran == [("before", 1), ("stuck", 1), ("behind", 1)]


def test_a_neighbour_that_was_taken_back_is_cancelled_before_it_runs(kit: Kit) -> None:
    stuck = Stuck(kit)
    txs = stuck.start("stuck", "behind")
    kit.client.cancel(txs[1])
    try:
        eventually(stuck.guard.look)
        assert stuck.statuses(txs) == [Status.RUNNING, Status.CANCELLED]
    finally:
        stuck.end()
    assert stuck.ran == [("stuck", 1)]


def test_nothing_is_taken_from_a_vector_that_moves(kit: Kit) -> None:
    stuck = Stuck(kit)
    [tx_id] = stuck.start("stuck")
    try:
        # It is alone: there is nobody to help, and its time is not over yet.
        assert not stuck.guard.look()
        assert stuck.kills == []
    finally:
        stuck.end()
    assert kit.status(tx_id).status is Status.SUCCESS


def test_a_step_that_ignores_its_time_limit_ends_its_process(kit: Kit) -> None:
    stuck = Stuck(kit, timeout_s=0.1)
    stuck.start("stuck")
    try:

        def killed() -> bool:
            stuck.guard.look()
            return bool(stuck.kills)

        eventually(killed)
    finally:
        stuck.end()
