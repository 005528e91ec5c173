"""Faults of a sweep: where they happen, and what others do while one process stands still."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError

from datp_tasks import failpoints
from datp_tasks.errors import DatpError, TransactionUnknown
from datp_tasks.failpoints import FailpointError, SimulatedCrash
from datp_tasks.record.record_types import Summary
from datp_tasks.testing.cases import Case
from datp_tasks.testing.kit import Kit

OWNER = "sweep"
#: While one stands still, the other one needs no more than this; if it cannot go on, it waits.
ROUNDS_MEANWHILE = 2
#: Where the run that is to be repaired crashes.
FIRST_CRASH = "hop.after_claim"

#: What a fault looks like to those who are not dead; whatever else is raised is a finding.
TROUBLE = (RedisError, DBAPIError, BrokerError, DatpError, FailpointError, OSError, SimulatedCrash)


class SweepFault:
    """Listens to the points that are passed, and acts when the one of its case is."""

    def __init__(self, case: Case | None, repairing: bool, act: Callable[[], None]) -> None:
        self._case = case
        self._must_crash = repairing
        self._act = act
        self.passed: Counter[str] = Counter()
        self.happened = False

    def reached(self, name: str) -> None:
        if self._must_crash and name == FIRST_CRASH:
            self._must_crash = False
            raise SimulatedCrash
        self.passed[name] += 1
        case = self._case
        if case is None or self.happened or name != case.point:
            return
        if self.passed[name] == case.nth:
            self.happened = True
            self._act()


def die_in_the_middle(name: str) -> None:
    """The step has taken effect, and that is not recorded yet."""
    if name.startswith(("effect:", "undo:")) and name.endswith(":after"):
        raise SimulatedCrash


class Other:
    """Another process, which does the work of one that stands still."""

    def __init__(self, kit: Kit, moved: Callable[[Kit, str], Summary]) -> None:
        self._kit = kit
        self._moved = moved

    def work(self, external_ids: Sequence[str], *, dies: bool = False) -> None:
        """It notices that the first one is silent, and takes over."""
        failpoints.disarm_all()
        if dies:
            failpoints.watch(die_in_the_middle)
        # In a thread of its own: this one may be in the middle of an event loop or a time limit.
        thread = threading.Thread(target=self._work, args=(external_ids,))
        thread.start()
        thread.join()
        failpoints.disarm_all()

    def close(self) -> None:
        self._kit.close()

    def _work(self, external_ids: Sequence[str]) -> None:
        kit = self._kit
        kit.send.crashes = 0
        for _ in range(ROUNDS_MEANWHILE):
            try:
                before = self._accepted(external_ids)
                if not before:
                    return
                kit.repair()
                if all(summary.is_final for summary in before):
                    kit.advance(seconds=kit.settings.delay_before_archiving_s + 1)
                    return
                ends = [self._moved(kit, summary.tx_id) for summary in before]
                if all(summary.is_final for summary in ends):
                    return
            except TROUBLE:
                # It is dead, or waits for a row that the one who stands still has locked.
                continue
            if kit.send.crashes:
                return

    def _accepted(self, external_ids: Sequence[str]) -> list[Summary]:
        found = []
        for external_id in external_ids:
            try:
                found.append(self._kit.client.find(OWNER, external_id))
            except TransactionUnknown:
                continue
        return found
