"""The sweep with real workers: one of them is killed or stopped at a point, others go on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from datp_tasks.record.record_types import Summary
from datp_tasks.testing.at_rest import live_violations, transaction_violations
from datp_tasks.testing.fault_orders import give_order
from datp_tasks.testing.sweep_faults import OWNER
from tests.chaos.transfer_steps import BANK_URL, pipelines
from tests.chaos.transfer_world import World
from tests.support.bank import Bank
from tests.support.eventually import eventually
from tests.support.house import House, process_state

STEPS = ("tests.chaos.transfer_steps", "datp_tasks.testing.fault_orders")
#: Everything much quicker than in production, so that a takeover takes a second.
QUICK: dict[str, Any] = {
    "shards": 2,
    "node_beat_ms": 100,
    "node_stale_ms": 600,
    "node_grace_ms": 150,
    "reaper_period_s": 0.2,
    "reconciler_period_s": 0.3,
    "ring_again_after_ms": 500,
    "archiver_role_s": 1.0,
    "archiver_grace_s": 0.5,
    "archiver_period_s": 0.3,
    "delay_before_archiving_s": 0,
    # A stopped worker that holds a row is shut out of SQL after the two together.
    "step_timeout_s": 1.5,
    "step_kill_grace_s": 0.5,
}
#: In the middle of a pause nobody else could go on before these have passed.
END_WITHIN_S = 40.0
#: How long after the end of a transfer its last point may be passed, by a job.
PASSED_WITHIN_S = 5.0
NIGHT_S = 0.1


class ProcessSweep:
    def __init__(self, house: House, bank: Bank, folder: Path) -> None:
        self.house = house
        self.world = World(create_engine(house.settings.database_url), bank, OWNER)
        self._orders = folder / "orders"
        self._numbers = iter(range(1, 1_000_000))
        #: Points that were not passed when they should have been.
        self.missed: list[str] = []
        house.use(*pipelines())
        workers = [house.worker("master,kyc", steer_file=self._orders) for _ in range(2)]
        house.beat()
        house.wait_ready(*workers)

    def points(self) -> list[str]:
        """Every point that a worker passes when a transfer runs, in alphabetical order."""
        token = f"record-{next(self._numbers)}"
        told = give_order(self._orders, token, action="record")
        tx_id = self._submit(fails=False)
        self._come_to_rest(self.house.client.wait(tx_id, timeout_s=END_WITHIN_S))
        self._no_orders()
        return sorted(set(told.read_text().split("\n")) - {""})

    def complaints(self, point: str, action: str, *, fails: bool = False) -> list[str]:
        """What is wrong after a worker was killed, or stopped for a while, at this point."""
        token = f"{action}-{next(self._numbers)}"
        told = give_order(self._orders, token, point=point, action=action)
        tx_id = self._submit(fails=fails)
        if not self._is_passed(told, tx_id):
            self.missed.append(point)
        elif action == "stop":
            pid = int(_text_of(told))
            eventually(lambda: process_state(pid) == "T", what="the stop")
            self._others_go_on(tx_id)
            os.kill(pid, signal.SIGCONT)
        summary = self.house.client.wait(tx_id, timeout_s=END_WITHIN_S)
        self._no_orders()
        return self._come_to_rest(summary)

    def _submit(self, *, fails: bool) -> str:
        data = self.world.request(night_s=NIGHT_S, fails=fails)
        return self.house.submit("chaos-transfer", data, owner=OWNER)

    def _is_passed(self, told: Path, tx_id: str) -> bool:
        """Jobs come by a while after the end, too; some points are passed once in a lifetime."""
        ends_s = time.monotonic() + END_WITHIN_S
        ended_s = None
        while not told.exists() and time.monotonic() < ends_s:
            if ended_s is None and self.house.all_final([tx_id]):
                ended_s = time.monotonic()
                ends_s = min(ends_s, ended_s + PASSED_WITHIN_S)
            threading.Event().wait(0.02)
        return told.exists()

    def _others_go_on(self, tx_id: str) -> None:
        """They end it, or the time is over in which the one that stands still is given up."""
        settings = self.house.settings
        # A busy machine needs some time for that; an end is seen at once.
        ends_s = (settings.node_stale_ms + settings.node_grace_ms) / 1_000 + 8
        try:
            eventually(lambda: self.house.all_final([tx_id]), within_s=ends_s)
        except AssertionError:
            return

    def _no_orders(self) -> None:
        give_order(self._orders, f"none-{next(self._numbers)}", point="nowhere", action="raise")

    def _come_to_rest(self, summary: Summary) -> list[str]:
        """What is still wrong when everything had time to be cleared away."""
        found: list[str] = []

        def clean() -> bool:
            found[:] = self._wrong_with(summary)
            return not found

        try:
            eventually(clean, within_s=15)
        except AssertionError:
            return found
        return []

    def _wrong_with(self, summary: Summary) -> Iterator[str]:
        connections = self.house.connections
        yield from transaction_violations(connections, summary)
        yield from live_violations(connections)
        yield from self.world.complaints_about(summary)


def _text_of(path: Path) -> str:
    """What a process has told; it may be in the middle of writing."""
    eventually(lambda: path.read_text(), within_s=5)
    return path.read_text()


def environment(bank: Bank) -> dict[str, str]:
    """What the workers need beside their settings."""
    return {BANK_URL: bank.url}
