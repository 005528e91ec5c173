"""The words of this room. What its stores take and give is the record's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.model.payload import Json
from datp_tasks.record.ledger_types import (
    UNSEEN,
    Asked,
    AttemptEnd,
    BatchAttempt,
    Begun,
    Claim,
    Finished,
    LedgerBatch,
    Move,
    NewBatch,
    SeenService,
    Service,
    Sighting,
    Stored,
    Work,
)

#: Batches of different services in one message; a slow ledger holds up the others of it.
VECTOR_MAX = 25
#: A batch is held in memory by each side, and in one row.
PAYLOAD_BYTES_MAX = 1_048_576

#: Rings for work: sends one message to a worker that takes submissions, or raises.
Ring = Callable[[Sequence[Work]], None]
#: Rings for any amount of work; what could not be rung for.
RingAll = Callable[[Sequence[Work]], list[Work]]
#: Tells those who wait that batches are final.
Tell = Callable[[Sequence[Finished]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a ledger says about a batch."""

    state: BatchState
    receipt: Json | None = None
    note: str | None = None


__all__ = [
    "UNSEEN",
    "Asked",
    "AttemptEnd",
    "BatchAttempt",
    "Begun",
    "Claim",
    "Finished",
    "LedgerBatch",
    "Move",
    "NewBatch",
    "Ring",
    "RingAll",
    "Seen",
    "SeenService",
    "Service",
    "Sighting",
    "Stored",
    "Tell",
    "Work",
]
