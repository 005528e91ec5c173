"""The queuer of one instance: maintain, renew, claim, look at the first in line, ring.

An instance is a process that ticks. It knows nothing of the others but what the database says:
how many leases are alive, so that it takes its share and no more.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datp_tasks.failpoints import reach
from datp_tasks.ledger.batch_types import RingAll, Work
from datp_tasks.record.ledger_claims import ClaimStore, Survey
from datp_tasks.settings import Settings

log = logging.getLogger("datp.ledger")


@dataclass(frozen=True, slots=True)
class TickResult:
    #: Attempts of which no process recorded the end.
    late: int = 0
    claimed: int = 0
    released: int = 0
    rung: int = 0


class Queuer:
    def __init__(
        self,
        *,
        settings: Settings,
        claims: ClaimStore,
        ring: RingAll,
        do: Callable[[Sequence[Work]], object],
    ) -> None:
        self._settings = settings
        self._claims = claims
        self._ring = ring
        self._do = do
        self._lock = threading.Lock()
        self._seen: frozenset[str] = frozenset()
        self._uneven = True
        #: The name under which this process holds its lease; empty while it has none.
        self.instance = ""
        #: When the last tick began, on the monotonic clock.
        self.ticked_s = float("-inf")

    def tick(self) -> TickResult:
        """One round. Two at once, in this process or in many, do no harm."""
        with self._lock:
            self.ticked_s = time.monotonic()
            survey = self._claims.survey()
            if not survey.any_service:
                return TickResult()
            return self._tick(survey)

    def _tick(self, survey: Survey) -> TickResult:
        settings = self._settings
        late = self._claims.clean_up(rows_max=settings.ledger_claim_batch_max)
        self._keep_lease()
        reach("ledger.after_renew")
        live = survey.live | {self.instance}
        claimed, released = self._take_share(survey, live)
        reach("ledger.after_claim")
        works = self._claims.next_work(self.instance, rows_max=settings.ledger_queue_batch_max)
        left = self._ring(works)
        if left:
            # An instance that cannot reach the broker must not sit on its claims.
            self._do(left[: settings.ledger_vector_max])
        return TickResult(late=late, claimed=claimed, released=released, rung=len(works))

    def _keep_lease(self) -> None:
        """A lease that has run out is over for good: what it held may be another instance's."""
        if self.instance and self._claims.renew(self.instance):
            return
        if self.instance:
            log.warning("the lease of %s has run out; this process starts anew", self.instance)
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._claims.join(name)
        self.instance = name

    def _take_share(self, survey: Survey, live: frozenset[str]) -> tuple[int, int]:
        """Counting costs a look at every service, so it is done only when something changed."""
        changed = live != self._seen
        if not (survey.unclaimed or survey.dead or changed or self._uneven):
            return 0, 0
        counts = self._claims.counts()
        share = -(-sum(counts.values()) // len(live))
        mine = counts.get(self.instance, 0)
        limit = self._settings.ledger_claim_batch_max
        claimed = released = 0
        if mine < share:
            room = min(share - mine, limit)
            claimed = len(self._claims.claim(self.instance, dead=survey.dead, rows_max=room))
        elif mine > share:
            released = self._claims.release(self.instance, rows_max=min(mine - share, limit))
        self._seen = live
        # What is in the middle of a submission, or more than a tick can move, stays for the next.
        self._uneven = mine - released > share
        return claimed, released

    def leave(self) -> None:
        """This process ends: others may take its services at once."""
        if self.instance:
            self._claims.leave(self.instance)
            self.instance = ""
