"""What clients send and get, as the OpenAPI document describes it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from datp_tasks.client.requests import Request
from datp_tasks.model.actor import Actor

Object = dict[str, Any]
Status = Literal[
    "queued",
    "running",
    "sleeping",
    "in-doubt",
    "success",
    "failed",
    "aborted",
    "cancelled",
    "expired",
    "internal-error",
]

#: PostgreSQL cannot store U+0000.
Text = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
Long = Annotated[str, Field(max_length=1_000, pattern=r"^[^\x00]*$")]

TX_ID = r"^t[0-9]{2}-[0-9a-f]{32}$"
EXAMPLE_ID = "t07-0197d3a1c5b27b1f8e0c2d4f6a8b9c0d"


class Sent(BaseModel):
    """Nothing is guessed: a field of another type, or an unknown one, is refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", strict=True, serialize_by_alias=True
    )


class Given(BaseModel):
    """For the document only: answers are written as they are."""

    model_config = ConfigDict(alias_generator=to_camel, serialize_by_alias=True)


class TransactionIn(Sent):
    pipeline: Annotated[Text, Field(examples=["transfer"])]
    input: Annotated[
        Object,
        Field(description="What the first step gets.", examples=[{"from": "ann", "to": "bob"}]),
    ]
    external_id: Annotated[
        str | None,
        Field(description="Your own name for it; the same request again is the same transaction."),
    ] = None
    webhook: Annotated[
        str | None, Field(description="Where to tell of its end; see docs/webhooks.md.")
    ] = None
    metadata: Object | None = None
    expires_at: Annotated[
        str | None, Field(description="When it must be over, as 2027-01-31T12:00:00Z.")
    ] = None
    expires_in_seconds: float | None = None
    progress_reports: Annotated[
        bool, Field(description="The webhook is told of progress, too.")
    ] = False
    cancel_webhook_on_poll: Annotated[
        bool, Field(description="What a poll has told, the webhook need not.")
    ] = False

    def request(
        self, owner: str, by: Actor, *, name: str | None = None, trace: str | None = None
    ) -> Request:
        """`name` is its external id if it has none of its own."""
        return Request(
            pipeline=self.pipeline,
            input=self.input,
            owner=owner,
            external_id=name if self.external_id is None else self.external_id,
            metadata=self.metadata,
            expires_at=self.expires_at,
            expires_in_s=self.expires_in_seconds,
            webhook=self.webhook,
            progress_reports=self.progress_reports,
            cancel_webhook_on_poll=self.cancel_webhook_on_poll,
            by=by,
            trace_parent=trace,
        )


class BulkIn(Sent):
    #: Checked one by one, so that a bad one does not hold up the others.
    transactions: Annotated[
        list[Any],
        Field(min_length=1, description="Each as for POST /v1/transactions (TransactionIn)."),
    ]


class CancelIn(Sent):
    reason: Long = "cancelled by its owner"


class SwitchIn(Sent):
    value: Annotated[bool | int | float | str | None, Field(description="null removes the switch.")]


class BatchIn(Sent):
    service: Text
    payload: Annotated[str, Field(description="The bytes for the ledger, in base64.")]
    batch_id: Text | None = None


class Accepted(Given):
    tx_id: Annotated[str, Field(pattern=TX_ID, examples=[EXAMPLE_ID])]
    status: Status


class Transaction(Given):
    tx_id: Annotated[str, Field(pattern=TX_ID, examples=[EXAMPLE_ID])]
    status: Status
    owner: str
    external_id: str | None
    pipeline: str
    version: str
    input: Object
    output: Annotated[Object | None, Field(description="What it returned, once it has ended.")]
    progress: Annotated[Object | None, Field(description="What a step reported last.")]
    note: str | None
    metadata: Object | None
    sequence: Annotated[int, Field(description="Number of its last event; the end is one.")]
    webhook: str | None
    created_at: datetime
    completed_at: datetime | None
    expires_at: datetime | None
    no_return_at: Annotated[
        datetime | None, Field(description="Since when it cannot expire or be cancelled.")
    ]
    forwarded_at: Annotated[
        datetime | None, Field(description="Since when another system decides about it.")
    ]
    notified_at: datetime | None
    submitted_by: Annotated[
        str | None, Field(description="For operators: the key that handed it in.")
    ] = None
    origin: Annotated[
        str | None, Field(description="For operators: its request id and address.")
    ] = None


class Paged(Given):
    """What every list says of its page."""

    next_cursor: Annotated[str | None, Field(description="Send as `cursor`; null at the end.")]
    has_more: Annotated[bool, Field(description="Whether there is another page.")]
    limit: Annotated[int, Field(description="The most that this page could have.")]


class Page(Paged):
    transactions: list[Transaction]


class BulkResult(Given):
    index: Annotated[int, Field(description="Its place in the request, from 0.")]
    external_id: Annotated[str | None, Field(description="As it was sent.")]
    status: Annotated[int, Field(description="202 new, 200 accepted before, else see problem.")]
    tx_id: str | None = None
    transaction_status: Status | None = None
    problem: Object | None = None


class BulkOut(Given):
    accepted: int
    repeated: int
    refused: int
    results: list[BulkResult]


class EventOut(Given):
    sequence: int
    kind: str
    payload: Object
    created_at: datetime


class Events(Paged):
    events: list[EventOut]


class FeedData(Given):
    """The transaction as of the event; with more fields as they come."""

    model_config = ConfigDict(alias_generator=to_camel, serialize_by_alias=True, extra="allow")

    tx_id: str
    status: str


class FeedEventShown(Given):
    id: str
    cursor: Annotated[str, Field(description="Send as `after` to go on behind this one.")]
    type: str
    timestamp: datetime
    owner: str
    data: FeedData


class CloudEvent(BaseModel):
    """With `format=cloudevents`."""

    specversion: Literal["1.0"]
    id: str
    source: str
    type: str
    subject: str
    time: datetime
    datacontenttype: Literal["application/json"]
    data: FeedData


class FeedPageShown(Given):
    events: list[FeedEventShown | CloudEvent]
    next_cursor: Annotated[str, Field(description="Send as `after`; a feed has no end.")]
    has_more: Annotated[bool, Field(description="Whether there is another page now.")]
    limit: Annotated[int, Field(description="The most that this page could have.")]


class Woken(Given):
    woken: bool


class BatchReceipt(Given):
    transaction_id: str
    state: Annotated[str, Field(description="As that of its batch: a ledger takes all or none.")]
    note: Annotated[str | None, Field(description="What the ledger said of this transaction.")]


class BatchReceipts(Paged):
    receipts: list[BatchReceipt]


Position = Annotated[
    int | None, Field(description="In the line of the service, which owners share; for operators.")
]


class LedgerBatch(Given):
    service: str
    batch_id: str
    position: Position
    owner: str
    state: str
    attempts: int
    receipt: Object | None
    note: str | None
    tx_id: str | None
    created_at: datetime
    final_at: datetime | None


class BatchDecided(Given):
    service: str
    batch_id: str
    state: Annotated[str, Field(description="After the decision.")]


class StoredBatch(Given):
    service: str
    batch_id: str
    position: Position
    state: str


class Batches(Paged):
    batches: list[LedgerBatch]


class Health(Given):
    status: str


class Readiness(Given):
    status: str
    postgresql: str
    redis: str


class WebhookTransaction(Given):
    tx_id: Annotated[str, Field(pattern=TX_ID, examples=[EXAMPLE_ID])]
    external_id: str | None
    pipeline: str
    status: Status
    sequence: int
    output: Object | None
    progress: Object | None
    note: str | None
    metadata: Object | None
    created_at: datetime
    completed_at: datetime | None


class WebhookEvent(Given):
    type: Literal["transaction.completed", "transaction.progress"]
    timestamp: datetime
    data: WebhookTransaction


class Mistake(BaseModel):
    pointer: Annotated[str, Field(description="Where: a JSON pointer.")]
    detail: str


class ProblemDocument(BaseModel):
    """RFC 9457."""

    type: Annotated[str, Field(pattern="^urn:datp:problem:[a-z-]+$")]
    title: str
    status: int
    detail: str
    retryable: Annotated[bool, Field(description="The same request can succeed later.")]
    request_id: Annotated[str | None, Field(alias="requestId")] = None
    errors: list[Mistake] | None = None
    error_id: Annotated[str | None, Field(alias="errorId")] = None
