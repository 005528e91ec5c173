"""When a transaction must be over: what its client asked for, or what its pipeline says.

The time is that of the database, which also decides later whether it has come.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from datp_tasks.errors import ExpiryInvalid
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.model.pipeline_rules import EXPIRES_S_MAX

EXAMPLE = "2027-01-31T12:00:00Z"

#: Asks the database for the time.
Now = Callable[[], datetime]


class ExpiryPast(ExpiryInvalid):
    """The expiry is in the past."""


def checked_expiry(
    expires_at: object,
    expires_in_s: object,
    definition: PipelineDefinition,
    now: Now,
) -> datetime | None:
    """The moment at which it expires, or None, or ExpiryInvalid that says what is wrong."""
    if expires_at is not None and expires_in_s is not None:
        raise ExpiryInvalid("give expires_at or expires_in_s, not both")
    if expires_at is not None:
        return _checked_time(expires_at, now())
    if expires_in_s is not None:
        seconds = _checked_seconds(expires_in_s, "expires_in_s")
        return now() + timedelta(seconds=seconds)
    if definition.expires_in_s is not None:
        what = f"expiresInSeconds of the pipeline {definition.name}"
        seconds = _checked_seconds(definition.expires_in_s, what)
        return now() + timedelta(seconds=seconds)
    return None


def _checked_seconds(value: object, what: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value > 0:  # type: ignore[operator]
        raise ExpiryInvalid(f"{what} must be a number of seconds above 0, was {value!r:.100}")
    if value > EXPIRES_S_MAX:  # type: ignore[operator]
        raise ExpiryInvalid(
            f"{what} is {value!r:.100}; at most {EXPIRES_S_MAX} seconds are allowed"
        )
    return float(value)  # type: ignore[arg-type]


def moment_of(value: object) -> datetime:
    """A time with a zone, or its ISO text, as UTC."""
    moment = _parsed(value)
    if moment.utcoffset() is None:
        raise ExpiryInvalid(
            f"expires_at must say its time zone, as in {EXAMPLE}, was {value!s:.100}"
        )
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError):
        raise ExpiryInvalid(f"expires_at is out of range: {value!s:.100}") from None


def _checked_time(value: object, now: datetime) -> datetime:
    moment = moment_of(value)
    if moment <= now:
        raise ExpiryPast(
            f"expires_at is in the past: {moment.isoformat()}; it is {now.isoformat()} now"
        )
    if moment > now + timedelta(seconds=EXPIRES_S_MAX):
        raise ExpiryInvalid(
            f"expires_at is too far away: {moment.isoformat()}; "
            f"at most {EXPIRES_S_MAX} seconds from now are allowed"
        )
    return moment


def _parsed(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and "T" in value:
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    raise ExpiryInvalid(f"expires_at must be a time such as {EXAMPLE}, was {value!r:.100}")
