"""Why a transaction must turn around: its client took it back, or its time is over."""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.model.status import Status

#: What a transaction can be recalled to.
STOP_STATUSES = (Status.CANCELLED, Status.EXPIRED)


@dataclass(frozen=True, slots=True)
class StopRequest:
    """How it will end once everything is rolled back, and why."""

    status: Status
    reason: str

    def to_text(self) -> str:
        """As the field `cancel` in Redis has it."""
        return f"{self.status}:{self.reason}"

    @classmethod
    def from_text(cls, text: str) -> StopRequest:
        """A text without a status is the reason of a client."""
        status, _, reason = text.partition(":")
        if status in STOP_STATUSES:
            return cls(Status(status), reason)
        return cls(Status.CANCELLED, text)
