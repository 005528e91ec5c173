"""The guard: a side thread that looks after a step which does not return.

Its neighbours in the vector go on elsewhere, and when the step is far beyond its limit (stuck in
code that no exception reaches) the process is killed, so that the reaper can act. Between such
troubles it frees what Redis wrongly counts as running here.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable

from datp_tasks.engine.hop import Hop
from datp_tasks.engine.orphaned_claims import OrphanedClaims
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.settings import Settings

log = logging.getLogger("datp.hop")


#: Long against a usual step, short against what a waiting neighbour's client notices.
STUCK_MS = 500


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Guard:
    def __init__(
        self,
        settings: Settings,
        hop: Hop,
        orphaned_claims: OrphanedClaims,
        kill: Callable[[], None] = kill_this_process,
    ) -> None:
        self._stuck_s = STUCK_MS / 1_000
        self._grace_s = settings.step_kill_grace_s
        self._audit_s = settings.node_beat_ms / 1_000
        self._hop = hop
        self._orphaned_claims = orphaned_claims
        self._kill = kill
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="datp-guard", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def look(self) -> bool:
        """One look; True if something was stuck."""
        if self._hop.round.overdue_s() > self._grace_s:
            log.critical("a step ignores its time limit; this process ends so that others go on")
            self._kill()
        stuck = self._hop.round.take_if_stuck(self._stuck_s)
        if stuck is None:
            return False
        self._hop.rescue(stuck)
        return True

    def _run(self) -> None:
        audited_s = time.monotonic()
        while not self._stopped.wait(self._stuck_s / 2):
            try:
                self.look()
                if time.monotonic() - audited_s > self._audit_s:
                    audited_s = time.monotonic()
                    self._orphaned_claims.look()
            except RedisError as error:
                log.warning("the guard does not reach Redis: %s", error)
            except Exception:
                log.exception("the guard could not help; it looks again")
