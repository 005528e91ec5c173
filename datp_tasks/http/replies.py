"""What the API answers, as values with types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datp_tasks.http.api_error import ApiError
from datp_tasks.http.flows import Answered
from datp_tasks.model.status import Status

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Receipt:
    """A transaction that is committed and will not be lost."""

    tx_id: str
    status: Status
    #: It was accepted before, under the same external id or idempotency key.
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """What became of one transaction of a bulk: a receipt, or why it was refused."""

    index: int
    external_id: str | None
    receipt: Receipt | None
    problem: Json | None


@dataclass(frozen=True, slots=True)
class RemoteTransaction:
    """A transaction as of now; `document` has every field that the API sent."""

    tx_id: str
    status: Status
    pipeline: str
    version: str
    owner: str
    external_id: str | None
    input: Json | None
    output: Json | None
    progress: Json | None
    note: str | None
    metadata: Json | None
    #: Number of its last event.
    sequence: int
    created_at: datetime | None
    completed_at: datetime | None
    document: Json

    @property
    def is_final(self) -> bool:
        return self.status.is_final


@dataclass(frozen=True, slots=True)
class BulkReceipt:
    """A bulk transfer that is committed with its transfers."""

    bulk_id: str
    #: It was accepted before, under the same external id or idempotency key.
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class RemoteTransfer:
    """What became of one transfer of a bulk so far."""

    #: Its place in the request, from 0.
    index: int
    #: A status of a transaction; or `refused`, `duplicate` or `gone`.
    status: str
    #: None if it has no transaction in this bulk.
    tx_id: str | None
    external_id: str | None
    #: Why it was refused, or what its transaction says.
    note: str | None
    #: After a cancel, what became of that: `cancelled`, `stopping`, `ended`, `no-return`,
    #: `refused` or `none`.
    cancel: str | None
    cancel_note: str | None


@dataclass(frozen=True, slots=True)
class RemoteBulkTransfer:
    """A bulk transfer as of now; `document` has every field that the API sent."""

    bulk_id: str
    #: RECEIVED, PROCESSING, EXPIRING, COMPLETED or EXPIRED.
    state: str
    external_id: str | None
    pipeline: str
    #: Transfers by status.
    counts: dict[str, int]
    transfers: list[RemoteTransfer]
    created_at: datetime | None
    expires_at: datetime | None
    completed_at: datetime | None
    document: Json

    @property
    def is_final(self) -> bool:
        return self.state in ("COMPLETED", "EXPIRED")


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One event of the feed: what happened to one transaction."""

    #: The same for ever: an event that was read twice is recognised by it.
    id: str
    #: Where to go on after it.
    cursor: str
    #: `transaction.completed` and the like; docs/events.md lists them.
    type: str
    tx_id: str
    at: datetime | None
    #: The transaction as it was then, as in a webhook.
    data: Json


def json_of(reply: Answered) -> Json:
    """The body, which is a JSON object in every successful answer."""
    try:
        found = json.loads(reply.body) if reply.body else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        detail = f"The answer with status {reply.status} is not a JSON object: is the URL right?"
        raise ApiError(detail, status=reply.status, kind="not-json", retryable=False)
    return found


@contextmanager
def understood() -> Iterator[None]:
    """An answer of another shape, of another server or of a later release, is an ApiError."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        detail = f"The answer is not what this client expects ({error!r:.100}): is the URL right?"
        raise ApiError(detail, status=200, kind="answer-unknown", retryable=False) from None


def receipt_of(reply: Answered) -> Receipt:
    found = json_of(reply)
    return Receipt(found["txId"], Status(found["status"]), repeated=reply.status == 200)


def transaction_of(found: Mapping[str, Any]) -> RemoteTransaction:
    return RemoteTransaction(
        tx_id=found["txId"],
        status=Status(found["status"]),
        pipeline=found["pipeline"],
        version=found["version"],
        owner=found["owner"],
        external_id=found.get("externalId"),
        input=found.get("input"),
        output=found.get("output"),
        progress=found.get("progress"),
        note=found.get("note"),
        metadata=found.get("metadata"),
        sequence=found.get("sequence") or 0,
        created_at=moment_of(found.get("createdAt")),
        completed_at=moment_of(found.get("completedAt")),
        document=dict(found),
    )


def bulk_answer_of(number: int, found: Mapping[str, Any]) -> BulkAnswer:
    tx_id = found.get("txId")
    receipt = (
        Receipt(tx_id, Status(found["transactionStatus"]), repeated=found["status"] == 200)
        if tx_id and found.get("problem") is None
        else None
    )
    index = found.get("index", number)
    return BulkAnswer(index, found.get("externalId"), receipt, found.get("problem"))


def bulk_transfer_of(found: Mapping[str, Any]) -> RemoteBulkTransfer:
    return RemoteBulkTransfer(
        bulk_id=found["bulkId"],
        state=found["state"],
        external_id=found.get("externalId"),
        pipeline=found["pipeline"],
        counts=dict(found["counts"]),
        transfers=[_transfer_of(each) for each in found["transfers"]],
        created_at=moment_of(found.get("createdAt")),
        expires_at=moment_of(found.get("expiresAt")),
        completed_at=moment_of(found.get("completedAt")),
        document=dict(found),
    )


def _transfer_of(found: Mapping[str, Any]) -> RemoteTransfer:
    return RemoteTransfer(
        index=found["index"],
        status=found["status"],
        tx_id=found.get("txId"),
        external_id=found.get("externalId"),
        note=found.get("problem") or found.get("note"),
        cancel=found.get("cancel"),
        cancel_note=found.get("cancelNote"),
    )


def event_of(found: Mapping[str, Any]) -> FeedEvent:
    return FeedEvent(
        id=found["id"],
        cursor=found["cursor"],
        type=found["type"],
        tx_id=found["data"]["txId"],
        at=moment_of(found["timestamp"]),
        data=found["data"],
    )


def moment_of(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
