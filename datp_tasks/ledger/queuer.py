"""The queuer of one instance: maintain, renew, claim, look at the first in line, ring.

An instance is a process that ticks. It knows nothing of the others but what the database says:
how many leases are alive, so that it takes its share and no more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datp_tasks.failpoints import reach
from datp_tasks.ledger.batch_types import VECTOR_MAX, RingAll, Work
from datp_tasks.process_name import unique_name
from datp_tasks.record.ledger_claims import ClaimStore, Survey

log = logging.getLogger("datp.ledger")

#: One tick of an instance that starts alone with a hundred thousand services takes seconds.
CLAIMS_MAX = 5_000
#: Batches that one tick rings for in less than its period.
RUNG_MAX = 1_000


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
        claims: ClaimStore,
        ring: RingAll,
        do: Callable[[Sequence[Work]], object],
    ) -> None:
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
        late = self._claims.clean_up(rows_max=CLAIMS_MAX)
        self._keep_lease()
        reach("ledger.after_renew")
        live = survey.live | {self.instance}
        claimed, released = self._take_share(survey, live)
        reach("ledger.after_claim")
        works = self._claims.next_work(self.instance, rows_max=RUNG_MAX)
        left = self._ring(works)
        if left:
            # An instance that cannot reach the broker must not sit on its claims.
            self._do(left[:VECTOR_MAX])
        return TickResult(late=late, claimed=claimed, released=released, rung=len(works))

    def _keep_lease(self) -> None:
        """A lease that has run out is over for good: what it held may be another instance's."""
        if self.instance and self._claims.renew(self.instance):
            return
        if self.instance:
            log.warning("the lease of %s has run out; this process starts anew", self.instance)
        name = unique_name()
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
        claimed = released = 0
        if mine < share:
            room = min(share - mine, CLAIMS_MAX)
            claimed = len(self._claims.claim(self.instance, dead=survey.dead, rows_max=room))
        elif mine > share:
            released = self._claims.release(self.instance, rows_max=min(mine - share, CLAIMS_MAX))
        self._seen = live
        # What is in the middle of a submission, or more than a tick can move, stays for the next.
        self._uneven = mine - released > share
        return claimed, released

    def leave(self) -> None:
        """This process ends: others may take its services at once."""
        if self.instance:
            self._claims.leave(self.instance)
            self.instance = ""
