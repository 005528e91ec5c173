"""What the stores of batches and claims take and give: plain frozen data, made from rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import MAXYEAR, datetime
from operator import attrgetter
from typing import Any, NamedTuple

from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import FINAL_STATES, BatchState, Verdict
from datp_tasks.model.payload import Json


class Work(NamedTuple):
    """What a submit message says: look at this batch, under this claim. A hint, as all bells."""

    service_id: str
    #: Empty: whatever batch is first in line.
    batch_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A checked batch, ready to be stored."""

    service_id: str
    batch_id: str
    payload: bytes = field(repr=False)
    owner: str = "local"
    #: A transaction that waits for it, and the switch that wakes that.
    tx_id: str | None = None
    switch: str | None = None
    #: Who handed it in, for the audit; None: a program of this installation, or a step.
    by: Actor | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """The batch is committed in the record: it will be submitted, in its turn."""

    service_id: str
    batch_id: str
    seq: int
    state: BatchState
    #: It had been stored before, with the same bytes.
    duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    service_id: str
    kind: str
    url: str
    #: Name of the sealed secret that is sent as its Authorization.
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class SeenService:
    """What the one who changes a service has seen of it."""

    #: None: that there is none.
    service: Service | None = None
    is_compared: bool = True


#: The caller has not looked: whatever there is, is changed.
UNSEEN = SeenService(is_compared=False)


def service_values(service: Service, seen: SeenService) -> dict[str, Any]:
    """For the statement that makes a service, or changes what was seen of it."""
    was = seen.service
    return {
        "service": service.service_id,
        "kind": service.kind,
        "url": service.url,
        "secret": service.secret,
        "compares": seen.is_compared,
        "seen_url": was.url if was else None,
        "seen_secret": was.secret if was else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who may queue the batches of a service, and until when."""

    service_id: str
    claimant: str | None
    epoch: int
    expiry: datetime | None
    is_live: bool
    #: How many batches are not final, and the first of them.
    waiting: int
    head: str | None
    head_state: BatchState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAttempt:
    """One POST, as recorded."""

    attempt: int
    epoch: int
    sender: str
    begun_at: datetime
    ended_at: datetime | None
    verdict: Verdict | None
    http_status: int | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A state that a batch came into, and who saw that."""

    state: BatchState
    source: str
    note: str | None
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBatch:
    """A batch as its client sees it."""

    service_id: str
    batch_id: str
    seq: int
    owner: str
    state: BatchState
    attempts: int
    resubmits: int
    next_at: datetime | None
    #: What the ledger said about it at the end.
    receipt: Json | None
    note: str | None
    tx_id: str | None
    created_at: datetime
    final_at: datetime | None

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An attempt that is committed as begun: it may be sent, once."""

    service_id: str
    batch_id: str
    kind: str
    url: str
    payload: bytes = field(repr=False)
    epoch: int
    attempt: int
    #: Attempts that may have reached the ledger, this one included.
    possible: int
    secret: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.service_id, self.batch_id


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended, and what that makes of its batch."""

    begun: Begun
    verdict: Verdict
    state: BatchState
    http_status: int | None
    note: str
    #: Pause before the next attempt, or before the ledger is asked.
    pause_s: float
    #: An operator should look: the kind of alert.
    alert: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A batch of which the ledger is asked, as it was when it was taken up."""

    service_id: str
    batch_id: str
    kind: str
    url: str
    state: BatchState
    attempts: int
    possible: int
    resubmits: int
    unknown_seen: int
    #: Nothing that was begun can still be on its way.
    grace_over: bool
    #: The ledger would not swallow a second submission as one it has just seen.
    swallow_over: bool
    secret: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.service_id, self.batch_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What an answer makes of a batch."""

    asked: Asked
    state: BatchState
    unknown_seen: int = 0
    resubmits: int = 0
    receipt: Json | None = None
    note: str | None = None
    #: An operator should look: the kind of alert.
    alert: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A batch that has just become final; a transaction that waits for it can be told."""

    service_id: str
    batch_id: str
    state: BatchState
    tx_id: str | None
    switch: str | None


def batch_from_row(row: Any) -> LedgerBatch:
    return LedgerBatch(
        service_id=row.service_id,
        batch_id=row.batch_id,
        seq=row.seq,
        owner=row.owner,
        state=BatchState(row.state),
        attempts=row.attempts,
        resubmits=row.resubmits,
        # PostgreSQL's infinity: nothing is planned.
        next_at=None if row.next_at.year == MAXYEAR else row.next_at,
        receipt=None if row.receipt is None else json.loads(row.receipt),
        note=row.note,
        tx_id=row.tx_id,
        created_at=row.created_at,
        final_at=row.final_at,
    )


def begun_from_row(row: Any) -> Begun:
    return Begun(
        service_id=row.service_id,
        batch_id=row.batch_id,
        kind=row.kind,
        url=row.url,
        payload=bytes(row.payload),
        epoch=row.claim_epoch,
        attempt=row.attempts,
        possible=row.possible,
        secret=row.secret,
    )


def asked_from_row(row: Any) -> Asked:
    names = ("service_id", "batch_id", "kind", "url", "attempts", "possible", "resubmits")
    more = ("unknown_seen", "grace_over", "swallow_over", "secret")
    values = dict(zip((*names, *more), attrgetter(*names, *more)(row), strict=True))
    return Asked(state=BatchState(row.state), **values)


def attempt_from_row(row: Any) -> BatchAttempt:
    return BatchAttempt(
        attempt=row.attempt,
        epoch=row.epoch,
        sender=row.sender,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        verdict=None if row.verdict is None else Verdict(row.verdict),
        http_status=row.http_status,
        note=row.note,
    )


def finished_from_rows(rows: Sequence[Any]) -> list[Finished]:
    return [
        Finished(
            service_id=row.service_id,
            batch_id=row.batch_id,
            state=BatchState(row.state),
            tx_id=row.tx_id,
            switch=row.switch,
        )
        for row in rows
        if row.final
    ]


def claim_from_row(row: Any) -> Claim:
    return Claim(
        service_id=row.service_id,
        claimant=row.claimant,
        epoch=row.epoch,
        expiry=row.expiry,
        is_live=bool(row.is_live),
        waiting=row.waiting,
        head=row.head,
        head_state=None if row.head_state is None else BatchState(row.head_state),
    )
