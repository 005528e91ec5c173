"""What each answer to a submission means, as one table. The first row that fits is taken.

The question each row answers: has the ledger certainly not taken the batch? Only then may it be
sent again without asking. What is not in the table is unsure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from datp_tasks.model.ledger_batch import BatchState, Verdict
from datp_tasks.outbound.messages import Exchange, NotSent, Response

ACCEPTED, REFUSED, UNSURE = Verdict.ACCEPTED, Verdict.REFUSED, Verdict.UNSURE
PENDING, DELAYED, UNKNOWN = BatchState.PENDING, BatchState.DELAYED, BatchState.UNKNOWN


@dataclass(frozen=True, slots=True)
class Rule:
    #: HTTP status; 0 for a request that was not sent, None for any.
    status: int | None
    #: The ledger's own error code in the body; None for any.
    code: int | None
    verdict: Verdict
    state: BatchState
    meaning: str
    #: Waiting will not help by itself: a person should look.
    alert: bool = False
    #: Come back after minutes, not seconds.
    is_long: bool = False


RULES: Sequence[Rule] = (
    Rule(202, None, ACCEPTED, PENDING, "taken into the ledger's queue"),
    Rule(200, None, ACCEPTED, PENDING, "taken into the ledger's queue (gridd)"),
    Rule(400, None, REFUSED, BatchState.REFUSED, "the bytes are not acceptable", alert=True),
    Rule(401, None, REFUSED, DELAYED, "not authorized", alert=True, is_long=True),
    Rule(403, None, REFUSED, DELAYED, "not allowed", alert=True, is_long=True),
    Rule(404, None, REFUSED, DELAYED, "no such service there", alert=True, is_long=True),
    Rule(408, 19, REFUSED, DELAYED, "not passed on to the validator"),
    Rule(413, None, REFUSED, BatchState.REFUSED, "too large", alert=True),
    Rule(429, None, REFUSED, DELAYED, "its queue is full"),
    Rule(503, 15, REFUSED, DELAYED, "not ready"),
    Rule(503, 17, UNSURE, UNKNOWN, "it may or may not have been processed"),
    Rule(503, 18, UNSURE, UNKNOWN, "disconnected before the answer"),
    Rule(500, None, UNSURE, UNKNOWN, "an internal error"),
    Rule(0, None, REFUSED, DELAYED, "it was not sent"),
    Rule(None, None, UNSURE, UNKNOWN, "no answer that says what happened"),
)

#: For an address that this process must not talk to.
NOT_ALLOWED = Rule(0, None, REFUSED, DELAYED, "not sent", alert=True, is_long=True)


def judge(outcome: Exchange, code: int | None, rules: Sequence[Rule] = RULES) -> Rule:
    """The row that fits how an exchange ended; `code` is what the ledger says in its body."""
    status = 0 if isinstance(outcome, NotSent) else None
    if isinstance(outcome, Response):
        status = outcome.status
    return next(
        rule for rule in rules if rule.status in (None, status) and rule.code in (None, code)
    )
