"""Send webhooks that are due.

Moves:    pending -> delivered (any 2xx), dead (410, or the last try), or due again later. No
          transaction moves: what is told was committed before.
Knows:    what the receiver answers. Without an answer it may have the webhook all the same, so it
          comes again, under the same id.
Bound:    `webhook_workers` attempts at a time and PER_URL_MAX per target; a run stays
          for `webhook_run_s`, then what is under way goes on beside the work of the process.
Overlap:  harmless: attempts are claimed in SQL by their number, so each is made once.
Crash:    everything taken is due again after `webhook_hold_s`; what Redis has lost is found in SQL
          once it is overdue by `webhook_overdue_s`.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.webhooks.sender import Pace
from datp_tasks.webhooks.webhook_service import WebhookService


@dataclass(frozen=True, slots=True)
class Result:
    #: Put back on the schedule from SQL.
    found: int
    #: Attempts that ended, and how; all 0 while they go on in the background.
    delivered: int
    failed: int
    dead: int


def run_once(webhooks: WebhookService, *, pace: Pace) -> Result:
    return send(webhooks, pace=pace, found=webhooks.repair())


def send(webhooks: WebhookService, *, pace: Pace, found: int = 0) -> Result:
    """Only what Redis knows to be due; also called when something has just become so."""
    sent = webhooks.run(pace)
    if sent is None:
        return Result(found=found, delivered=0, failed=0, dead=0)
    return Result(found=found, delivered=sent.delivered, failed=sent.failed, dead=sent.dead)
