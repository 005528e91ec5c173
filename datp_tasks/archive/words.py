"""What the record takes and gives: plain frozen data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datp_tasks.model.payload import Json
from datp_tasks.model.status import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A checked request, ready to be committed."""

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


@dataclass(frozen=True, slots=True)
class Existing:
    """The external id had been used before."""

    tx_id: str
    status: Status
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """How a worker wants a transaction to end."""

    tx_id: str
    fence: int
    status: Status
    output_json: str | None
    note: str | None
    progress_json: str | None = None


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

    @property
    def is_final(self) -> bool:
        return self.status.is_final


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
    )


def _maybe(text: str | None) -> Json | None:
    return None if text is None else json.loads(text)
