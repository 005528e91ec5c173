"""Why a transaction must stop and roll back: its client cancelled it, or it has expired."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from datp_tasks.model.status import Status


class StopKind(StrEnum):
    CANCEL = "cancel"
    EXPIRY = "expiry"


#: How a transaction ends that was stopped for this, once everything is rolled back.
ENDS_AS = {StopKind.CANCEL: Status.CANCELLED, StopKind.EXPIRY: Status.EXPIRED}


@dataclass(frozen=True, slots=True)
class StopRequest:
    kind: StopKind
    reason: str

    @classmethod
    def cancel(cls, reason: str) -> StopRequest:
        """Its client does not want it any more."""
        return cls(StopKind.CANCEL, reason)

    @classmethod
    def expiry(cls, reason: str) -> StopRequest:
        """It was not over in time."""
        return cls(StopKind.EXPIRY, reason)

    @classmethod
    def over(cls, expires_at: datetime) -> StopRequest:
        """The same, in the words that clients read."""
        return cls.expiry(f"it was not over by {expires_at.isoformat()}")

    @property
    def status(self) -> Status:
        """How the transaction ends."""
        return ENDS_AS[self.kind]

    def to_text(self) -> str:
        """As Redis has it (`live/keys.py`), and the journal and the table of signals in SQL."""
        return f"{self.status}:{self.reason}"

    @classmethod
    def from_text(cls, text: str) -> StopRequest:
        """A text without a status is the reason of a client."""
        status, _, reason = text.partition(":")
        for kind, ends_as in ENDS_AS.items():
            if status == ends_as:
                return cls(kind, reason)
        return cls.cancel(text)
