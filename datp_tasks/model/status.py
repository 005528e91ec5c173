"""The statuses a transaction can have, and which of them are the end."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class Status(StrEnum):
    #: Waits for a worker of its node group.
    QUEUED = "queued"
    #: A worker has claimed it.
    RUNNING = "running"
    #: Waits for a time or a switch.
    SLEEPING = "sleeping"
    #: Parked: it is not known whether a step took effect, so a person or a probe must decide.
    IN_DOUBT = "in-doubt"
    #: Every step was done.
    SUCCESS = "success"
    #: A step said no; what had been done was rolled back.
    FAILED = "failed"
    #: A step said no and asked for nothing to be rolled back.
    ABORTED = "aborted"
    #: A client took it back; what had been done was rolled back.
    CANCELLED = "cancelled"
    #: It outlived its time; what had been done was rolled back.
    EXPIRED = "expired"
    #: A step broke unexpectedly, more often than its retry policy allows.
    INTERNAL_ERROR = "internal-error"

    @property
    def is_final(self) -> bool:
        return self in FINAL


FINAL = frozenset(
    {
        Status.SUCCESS,
        Status.FAILED,
        Status.ABORTED,
        Status.CANCELLED,
        Status.EXPIRED,
        Status.INTERNAL_ERROR,
    }
)
#: What Redis alone tells apart.
GOING_ON = frozenset({Status.QUEUED, Status.RUNNING, Status.SLEEPING})


def recorded_as(statuses: Collection[str]) -> tuple[str, ...]:
    """Where the record has transactions of these statuses; which of them each has, Redis says.

    What goes on is queued there, or in doubt for an instant after it was decided about.
    """
    goes_on = (Status.QUEUED, Status.IN_DOUBT) if GOING_ON.intersection(statuses) else ()
    return tuple({*map(str, goes_on), *(str(each) for each in statuses if each not in GOING_ON)})
