"""What an answer makes of an attempt or of a batch: decisions without I/O."""

from __future__ import annotations

import random

from datp_tasks.ledger.batch_types import Asked, AttemptEnd, Begun, Move, Seen
from datp_tasks.ledger.kinds import KINDS, LedgerKind
from datp_tasks.ledger.rules import NOT_ALLOWED, Rule, judge
from datp_tasks.model.backoff import RetryPolicy
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.model.notes import clean_note
from datp_tasks.outbound.messages import Exchange, NoResponse, Response
from datp_tasks.record.ledger_batches import (
    ANOMALY_ALERT,
    DELAYED_ALERT,
    PARKED_ALERT,
    REFUSED_ALERT,
)
from datp_tasks.settings import Settings

#: One "unknown" may come from a validator that is behind; three in a row do not.
UNKNOWN_MAX = 3
#: A service that was put off so often in a row is worth a look.
DELAYS_BEFORE_ALERT = 10
EXCERPT_CHARS = 200


def ended(
    begun: Begun, outcome: Exchange, settings: Settings, rng: random.Random, *, allowed: bool = True
) -> AttemptEnd:
    """How an attempt ended, by the table of answers."""
    kind = KINDS.get(begun.kind)
    code = None
    if kind and isinstance(outcome, Response):
        try:
            code = kind.error_code(outcome)
        except Exception as error:
            # What the ledger did is not known then: it is asked.
            outcome = NoResponse(f"its kind cannot read the answer: {type(error).__name__}")
    rule = judge(outcome, code, kind.rules) if kind and allowed else NOT_ALLOWED
    return AttemptEnd(
        begun=begun,
        verdict=rule.verdict,
        state=rule.state,
        http_status=outcome.status if isinstance(outcome, Response) else None,
        note=clean_note(_note(rule, outcome, code)),
        pause_s=_pause_s(rule, begun.attempt, settings, rng),
        alert=_alert(rule, begun.attempt),
    )


def _note(rule: Rule, outcome: Exchange, code: int | None) -> str:
    if not isinstance(outcome, Response):
        return f"{rule.meaning}: {outcome.reason}"
    number = f"HTTP {outcome.status}" if code is None else f"HTTP {outcome.status} code {code}"
    if rule.state is BatchState.PENDING:
        return number
    excerpt = outcome.body[:EXCERPT_CHARS].decode(errors="replace")
    return f"{rule.meaning}: {number} {excerpt}".rstrip()


def _pause_s(rule: Rule, attempt: int, settings: Settings, rng: random.Random) -> float:
    if rule.state is not BatchState.DELAYED:
        return settings.ledger_poll_first_s
    if rule.is_long:
        return settings.ledger_long_delay_s
    policy = RetryPolicy(
        first_s=settings.ledger_delay_first_s, max_s=settings.ledger_delay_s_max, jitter=0.2
    )
    return policy.delay_s(attempt, rng)


def _alert(rule: Rule, attempt: int) -> str | None:
    if rule.state is BatchState.REFUSED:
        return REFUSED_ALERT
    if rule.state is BatchState.DELAYED and (rule.alert or attempt >= DELAYS_BEFORE_ALERT):
        return DELAYED_ALERT
    return None


def decide(asked: Asked, seen: Seen, settings: Settings) -> Move | None:
    """What the ledger's word makes of a batch; None if it changes nothing.

    Never backwards: a batch that was seen executed is not pending again, and nothing here touches
    what is final. Only not knowing a batch, often enough and after everything that could still be
    on its way must have arrived, allows it to be sent again.
    """
    if asked.state is BatchState.INVALID:
        return _checked_again(asked, seen)
    match seen.state:
        case BatchState.COMMITTED:
            return Move(
                asked=asked,
                state=BatchState.COMMITTED,
                resubmits=asked.resubmits,
                receipt=seen.receipt,
                note=seen.note,
            )
        case BatchState.INVALID:
            return _invalid(asked, seen, KINDS[asked.kind])
        case BatchState.UNKNOWN:
            return _unknown(asked, KINDS[asked.kind], settings)
    backwards = asked.state is BatchState.VALID and seen.state is BatchState.PENDING
    if backwards or (seen.state is asked.state and asked.unknown_seen == 0):
        return None
    return Move(asked=asked, state=seen.state, resubmits=asked.resubmits)


def _checked_again(asked: Asked, seen: Seen) -> Move | None:
    """It was sent more than once: a late twin can be executed after the first was refused."""
    if seen.state is not BatchState.COMMITTED:
        return None
    return Move(asked=asked, state=BatchState.COMMITTED, alert=ANOMALY_ALERT)


def _invalid(asked: Asked, seen: Seen, kind: LedgerKind) -> Move:
    if asked.possible > 1 and not kind.drops_duplicates:
        # The twin of a committed batch is refused: this word may be about the twin.
        return Move(
            asked=asked,
            state=BatchState.PARKED,
            resubmits=asked.resubmits,
            receipt=seen.receipt,
            note="the ledger calls it invalid, but it was sent more than once and an earlier "
            "one may be committed",
            alert=PARKED_ALERT,
        )
    return Move(
        asked=asked,
        state=BatchState.INVALID,
        resubmits=asked.resubmits,
        receipt=seen.receipt,
        note=seen.note or "the ledger calls it invalid",
    )


def _unknown(asked: Asked, kind: LedgerKind, settings: Settings) -> Move:
    times = asked.unknown_seen + 1
    waits = Move(
        asked=asked,
        state=BatchState.UNKNOWN,
        unknown_seen=times,
        resubmits=asked.resubmits,
        note="the ledger does not know it",
    )
    if times < UNKNOWN_MAX or not asked.grace_over:
        return waits
    if asked.resubmits >= settings.ledger_resubmits_max:
        return Move(
            asked=asked,
            state=BatchState.PARKED,
            resubmits=asked.resubmits,
            note=f"sent {asked.attempts} times, and the ledger still does not know it",
            alert=PARKED_ALERT,
        )
    is_last = asked.resubmits == settings.ledger_resubmits_max - 1
    if is_last and kind.drops_duplicates and not asked.swallow_over:
        # What it has seen within this time it drops without a word, so the last try waits.
        return waits
    return Move(
        asked=asked,
        state=BatchState.DELAYED,
        resubmits=asked.resubmits + 1,
        note="the ledger does not know it; it is sent again",
    )
