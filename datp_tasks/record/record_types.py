"""What the record takes and gives: plain frozen data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from datp_tasks.model.payload import Json
from datp_tasks.model.sealed import data_key_of, masked
from datp_tasks.model.status import Status


@dataclass(slots=True, kw_only=True)
class Acceptance:
    """A checked request, ready to be committed. Not frozen: that would double the time that making
    one takes, and each request makes one."""

    tx_id: str
    owner: str
    external_id: str | None
    #: Hash of what the client asked for; the same external id with another one is refused.
    fingerprint: str
    pipeline: str
    version: str
    input_json: str
    metadata_json: str | None
    expires_at: datetime | None = None
    #: Where to tell of its end; with `progress_reports` also of its progress.
    webhook: str | None = None
    progress_reports: bool = False
    #: A long poll that tells the end makes the webhook needless.
    cancel_webhook_on_poll: bool = False
    #: Where it belongs in a trace, if it is traced.
    trace: str | None = None
    #: The actor, and its request; None for programs of this installation.
    submitted_by: str | None = None
    origin: str | None = None
    #: `original`: its webhooks have the body that clients of the original look for.
    webhook_style: str | None = None
    #: What its input is sealed with; empty if it is not sealed.
    data_key: str = ""
    #: Search attributes from its input: names and texts (model/search_attributes.py).
    attributes: tuple[tuple[str, str], ...] = ()
    #: Who else is told of its end, with what that owner is shown (model/payee.py).
    payee_json: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A row of the log of state changes."""

    id: int
    tx_id: str
    status: Status
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Existing:
    """The external id had been used before."""

    tx_id: str
    status: Status
    fingerprint: str


class Final(NamedTuple):
    """How a worker wants a transaction to end. A tuple, because each transaction makes one."""

    tx_id: str
    fence: int
    status: Status
    output_json: str | None
    note: str | None
    progress_json: str | None = None
    #: Where it belongs in a trace, if it is traced.
    trace: str = ""
    #: Search attributes from its output: names and texts (model/search_attributes.py).
    attributes: tuple[tuple[str, str], ...] = ()
    #: A worker has had it; else its payee is not told.
    is_begun: bool = True


@dataclass(frozen=True, slots=True)
class Mark:
    """A status that is not final, such as in-doubt, on behalf of the holder of a fence."""

    tx_id: str
    fence: int
    note: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a transaction cannot pass a point of no return: something came first."""

    #: As the row has it (model/stop_request.py); None: its time is over, and that is all.
    request: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The transaction as its client sees it."""

    tx_id: str
    owner: str
    external_id: str | None
    pipeline: str
    version: str
    status: Status
    #: What the client sent.
    input: Json
    metadata: Json | None
    #: What the last step returned, once the transaction is final.
    output: Json | None
    #: The last progress report.
    progress: Json | None
    #: Why it ended, or why it does not move.
    note: str | None
    created_at: datetime
    completed_at: datetime | None
    fence: int
    #: When it must be over.
    expires_at: datetime | None = None
    webhook: str | None = None
    progress_reports: bool = False
    cancel_webhook_on_poll: bool = False
    #: Number of its last event; 0 before the first. The end is an event, too.
    sequence: int = 0
    #: When its client first got to know of an event by a poll.
    notified_at: datetime | None = None
    trace: str | None = None
    #: Who handed it in, and with which request: "<request id> <address>".
    submitted_by: str | None = None
    origin: str | None = None
    #: When its payloads were erased; its ids, status, times and hashes are still there.
    erased_at: datetime | None = None
    #: When it passed its point of no return: it cannot expire or be cancelled any more.
    no_return_at: datetime | None = None
    #: Since when another system decides: it cannot expire or be cancelled meanwhile.
    forwarded_at: datetime | None = None

    @property
    def is_final(self) -> bool:
        return self.status.is_final

    @property
    def is_sealed(self) -> bool:
        return bool(data_key_of(self.input))

    def masked(self) -> Summary:
        """As those see it who may not see what is sealed."""
        if not self.is_sealed:
            return self
        output, progress = masked(self.output), masked(self.progress)
        return replace(self, input=masked(self.input), output=output, progress=progress)


#: What a caller wants a transaction to be still when an action takes hold of it.
Precondition = Callable[[Summary], bool]


def summary_from_row(row: Any) -> Summary:
    return Summary(
        tx_id=row.tx_id,
        owner=row.owner,
        external_id=row.external_id,
        pipeline=row.pipeline,
        version=row.version,
        status=Status(row.status),
        input=json.loads(row.input),
        metadata=_maybe(row.metadata),
        output=_maybe(row.output),
        progress=_maybe(row.progress),
        note=row.note,
        created_at=row.created_at,
        completed_at=row.completed_at,
        fence=row.fence,
        expires_at=row.expires_at,
        webhook=row.webhook,
        progress_reports=row.progress_reports,
        cancel_webhook_on_poll=row.cancel_webhook_on_poll,
        sequence=row.event_count + (row.completed_at is not None),
        notified_at=row.notified_at,
        trace=row.trace,
        submitted_by=row.submitted_by,
        origin=row.origin,
        erased_at=row.erased_at,
        no_return_at=row.no_return_at,
        forwarded_at=row.forwarded_at,
    )


def _maybe(text: str | None) -> Json | None:
    return None if text is None else json.loads(text)
