"""A probe that does not return: what waits for its own probe is asked, and run, in one place only.

Redis has lost what it knew of some async steps, SQL has not: each was begun. So a hop that has them
in one vector asks their probes one after another before it runs anything. While the first probe is
stuck the guard hands the others over, and from then on they are another worker's business.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from datp_tasks import Done, NotDone, Pipeline
from datp_tasks.engine import guard
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.engine.guarded import GuardedHop, Pairs
from tests.support.eventually import eventually

Data = dict[str, Any]


class Asked:
    """Transactions whose step may have happened; the probe of the one named `stuck` hangs."""

    def __init__(self, kit: Kit, answer: type[Done | NotDone]) -> None:
        self.kit = kit
        self.hop = GuardedHop(kit)
        self.is_stuck = threading.Event()
        self.may_end = threading.Event()
        self.probed: list[str] = []
        self.ran: list[str] = []

        @kit.step("t/pay", on_crash="probe", timeout_s=60, retry={"max_attempts": 1})
        async def pay(ctx: Any, data: Data) -> Data:
            self.ran.append(data["name"])
            return data

        @pay.probe
        def look(ctx: Any, data: Data) -> Done | NotDone:
            self.probed.append(data["name"])
            if data["name"] == "stuck":
                self.is_stuck.set()
                self.may_end.wait(30)
            return Done(data) if answer is Done else NotDone()

        kit.use(Pipeline("p").step("t/pay").build())

    def start(self, *names: str) -> list[str]:
        """Each dies in its first try, Redis loses everything, and one bell takes them all."""
        kit = self.kit
        txs = []
        for name in names:
            kit.crash_at("hop.after_begun")
            txs.append(kit.submit("p", {"name": name}))
        kit.lose_bells()
        redis = kit.connections.redis
        for key in redis.scan_iter(match=f"{kit.settings.key_prefix}:*", count=1_000):
            redis.delete(key)
        rung_before = len(kit.send.rung)
        kit.recover()
        last = dict(pair for _, rung in kit.send.rung[rung_before:] for pair in rung)
        pairs: Pairs = [(tx_id, last[tx_id]) for tx_id in txs]
        assert self.ran == []
        self.hop.start("t/pay", pairs)
        assert self.is_stuck.wait(20)
        return txs

    def end(self) -> None:
        self.may_end.set()
        self.hop.join()
        self.hop.hear()


@pytest.fixture
def kit(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    monkeypatch.setattr(guard, "STUCK_MS", 50)
    kit = Kit(datp_servers)
    yield kit
    kit.close()


def asked_with_a_stuck_probe(kit: Kit, answer: Any) -> Asked:
    """One probe is stuck, and the two behind it are asked by other workers."""
    asked = Asked(kit, answer)
    txs = asked.start("stuck", "behind", "last")
    try:
        eventually(asked.hop.looks)
        asked.hop.hear()
        assert asked.hop.statuses(txs) == [Status.RUNNING, Status.SUCCESS, Status.SUCCESS]
    finally:
        asked.end()
    assert asked.hop.statuses(txs) == [Status.SUCCESS] * 3
    assert asked.probed[0] == "stuck"
    # What goes on elsewhere is rung shard by shard, in any order.
    assert sorted(asked.probed[1:]) == ["behind", "last"]
    return asked


def test_what_waited_behind_a_stuck_probe_and_had_happened_is_not_run_again(kit: Kit) -> None:
    assert asked_with_a_stuck_probe(kit, Done).ran == []


def test_what_waited_behind_a_stuck_probe_and_had_not_happened_runs_once(kit: Kit) -> None:
    asked = asked_with_a_stuck_probe(kit, NotDone)
    assert (sorted(asked.ran[:2]), asked.ran[2:]) == (["behind", "last"], ["stuck"])


def test_it_is_not_run_here_either_while_its_new_bell_is_not_heard_yet(kit: Kit) -> None:
    """The other worker is slow: when the probe returns at last, nothing has happened elsewhere."""
    asked = Asked(kit, Done)
    txs = asked.start("stuck", "behind")
    try:
        eventually(asked.hop.looks)
        assert asked.hop.statuses(txs) == [Status.RUNNING, Status.QUEUED]
        asked.may_end.set()
        asked.hop.join()
        assert asked.ran == []
        assert asked.hop.statuses(txs) == [Status.SUCCESS, Status.QUEUED]
    finally:
        asked.end()
    assert asked.hop.statuses(txs) == [Status.SUCCESS] * 2
    assert asked.probed == ["stuck", "behind"]
    assert asked.ran == []
