"""The heart of an instance: a thread that ticks when beat's message has not come here.

Beat rings for one process at a time, but each instance must renew its lease by itself; and
without beat, or without the broker, claims must go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from datp_tasks.ledger.queuer import Queuer
from datp_tasks.record.sql_errors import DBAPIError

log = logging.getLogger("datp.ledger")

STOP_S = 5.0


class Ticker:
    def __init__(
        self,
        queuer: Queuer,
        poll: Callable[[], object],
        *,
        period_s: float,
        is_wanted: Callable[[], bool],
    ) -> None:
        self._queuer = queuer
        self._is_wanted = is_wanted
        self._poll = poll
        self._period_s = period_s
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="datp-ledger", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Leave in order, so that no instance has to wait for the lease to run out."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
        try:
            self._queuer.leave()
        except DBAPIError as error:
            log.debug("the instance leaves without a word: %s", error)

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s / 4):
            if time.monotonic() - self._queuer.ticked_s < self._period_s:
                continue
            try:
                if not self._is_wanted():
                    # Workers of the ledger group do it from now on: leave them all services.
                    self._queuer.leave()
                    continue
                self._queuer.tick()
                self._poll()
            except Exception as error:
                # PostgreSQL or the broker is unavailable; the next round tries again.
                log.warning("no tick: %s", error)
