"""What an answer means: delivered, dead, or tried again after a while. No I/O."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

from datp_tasks.model.backoff import RetryPolicy
from datp_tasks.model.notes import clean_note
from datp_tasks.outbound.messages import Exchange, Response
from datp_tasks.record.webhook_queue import ClaimedDelivery, DeliveryOutcome
from datp_tasks.settings import Settings

#: All pauses together: three days, so that a weekend passes.
GIVE_UP_S = 259_200.0
GONE = 410
TOO_MANY = 429
EXCERPT_CHARS_MAX = 200
JITTER = 0.1
#: A receiver may ask for a day, not for ever.
RETRY_AFTER_S_MAX = 86_400.0


def outcome_of(
    claimed: ClaimedDelivery,
    exchange: Exchange,
    settings: Settings,
    rng: random.Random,
    *,
    took_ms: int,
) -> DeliveryOutcome:
    status, asked_s = None, 0.0
    if isinstance(exchange, Response):
        status, error = exchange.status, _said(exchange)
        asked_s = retry_after_s(exchange, claimed.at)
    else:
        error = clean_note(exchange.reason)
    if status is not None and 200 <= status < 300:
        return DeliveryOutcome(claimed=claimed, state="delivered", status=status, took_ms=took_ms)
    is_last = status == GONE or claimed.try_number >= settings.webhook_attempts_max
    delay_s = policy(settings).delay_s(claimed.try_number, rng)
    return DeliveryOutcome(
        claimed=claimed,
        state="dead" if is_last else "pending",
        wait_s=0.0 if is_last else max(delay_s, min(asked_s, RETRY_AFTER_S_MAX)),
        status=status,
        error=error,
        took_ms=took_ms,
        # A receiver that wants it slower, or not at all, is not broken.
        is_fault=status not in (GONE, TOO_MANY),
    )


def policy(settings: Settings) -> RetryPolicy:
    """Delays that begin with the first one and add up to the time after which we give up."""
    attempts, first_s = settings.webhook_attempts_max, settings.webhook_delay_first_s
    return RetryPolicy(
        max_attempts=attempts,
        first_s=first_s,
        factor=_factor(attempts - 1, first_s, GIVE_UP_S),
        max_s=max(first_s, GIVE_UP_S),
        jitter=JITTER,
    )


@lru_cache(maxsize=16)
def _factor(delays: int, first_s: float, total_s: float) -> float:
    """So that first_s * (1 + f + f² + …) comes to the total; at least 1."""
    low, high = 1.0, max(1.0, total_s / first_s)
    for _ in range(100):
        middle = (low + high) / 2
        if first_s * sum(middle**n for n in range(delays)) > total_s:
            high = middle
        else:
            low = middle
    return low


def retry_after_s(response: Response, now: datetime) -> float:
    """What the receiver asks for, as seconds or as a time by its own clock; 0 if nothing."""
    text = response.headers.get("retry-after", "")
    if text.isdecimal():
        return float(text[:9])
    when = _moment(text)
    if when is None:
        return 0.0
    then = _moment(response.headers.get("date", "")) or now
    return max(0.0, (when - then).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _said(response: Response) -> str:
    excerpt = " ".join(response.body.decode(errors="replace").split())[:EXCERPT_CHARS_MAX]
    more = "; redirects are not followed" if 300 <= response.status < 400 else ""
    return clean_note(f"answered {response.status}{more}{f': {excerpt}' if excerpt else ''}")
