"""Ask ledgers what became of the batches they have.

Moves:    PENDING, VALID, UNKNOWN -> what the ledger says. UNKNOWN -> DELAYED (sent again) after
          enough questions and time, -> PARKED with an alert after enough of that.
Knows:    what the ledger answers now; a ledger forgets, so not knowing a batch proves nothing.
Bound:    `POLLED_MAX` batches a run, grouped into few questions.
Overlap:  harmless: batches are put off before they are asked for, and no answer goes backwards.
Crash:    batches that were put off are due again some seconds later.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.ledger.poller import Poller


@dataclass(frozen=True, slots=True)
class Result:
    asked: int
    final: int
    rung: int


def run_once(poller: Poller) -> Result:
    polled = poller.poll()
    return Result(asked=polled.asked, final=polled.final, rung=polled.rung)
