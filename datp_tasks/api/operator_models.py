"""What operators get, as the OpenAPI document describes it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from datp_tasks.api.models import Given, Object, Paged, Transaction


class PipelineShown(Given):
    name: str
    version_in_use: str | None
    disabled: bool
    versions: int
    drafts: int
    updated_at: datetime


class PipelinesShown(Paged):
    pipelines: list[PipelineShown]


class PipelineVersionInfo(Given):
    name: str
    version: str
    content_hash: str
    state: Literal["draft", "committed"]
    comment: str | None
    created_at: datetime
    committed_at: datetime | None
    in_use: bool


class PipelineInUse(Given):
    name: str
    versions: list[PipelineVersionInfo]
    definition: Annotated[Object, Field(description="As a file has it (docs/pipelines.md).")]


class PipelineStopped(Given):
    name: str
    disabled: bool


class InputSchemaShown(Given):
    pipeline: str
    version: str
    input_schema: Annotated[
        Object, Field(description="JSON Schema 2020-12; any object if the pipeline has none.")
    ]
    source: Annotated[
        Literal["written", "derived", "none"],
        Field(description="derived: from the type of the input of its first step."),
    ]
    checked: Annotated[bool, Field(description="Whether an input that does not fit is refused.")]


class ExportedPipeline(Given):
    """For `importPipeline` elsewhere; the hash is that of the definition."""

    format: str
    name: str
    version: str
    content_hash: str
    comment: str | None
    definition: Object


class StepTypeShown(Given):
    """Of a node of an earlier release only the name is known."""

    name: str
    groups: Annotated[list[str], Field(description="Whose live nodes offer it.")]
    nodes: Annotated[int, Field(description="How many live nodes offer it.")]
    description: str = ""
    parameters: Annotated[Object, Field(description="JSON Schema of its params.")] = Field(
        default_factory=dict
    )
    default: Object = Field(
        default_factory=dict, alias="defaultDefinition", description="A step to begin with."
    )
    input: Annotated[
        Object | None, Field(description="JSON Schema of its input, if its function is typed.")
    ] = None
    on_crash: str | None = None
    transactional: bool | None = None
    vector: bool | None = None


class StepTypesShown(Paged):
    step_types: list[StepTypeShown]


class ServiceShown(Given):
    service: str
    kind: str
    url: str
    secret: Annotated[str | None, Field(description="Name of the secret its requests carry.")]


class ServicesShown(Paged):
    services: list[ServiceShown]
    kinds: Annotated[list[str], Field(description="Kinds of ledgers that are known here.")]


class ClaimShown(Given):
    service: str
    claimant: str | None
    epoch: int
    expires_at: datetime | None
    is_live: bool | None
    waiting: int
    head: Annotated[str | None, Field(description="The batch that is first in line.")]
    head_state: str | None


class ClaimsShown(Paged):
    claims: list[ClaimShown]


class NodeShown(Given):
    """Beside these, whatever a node says of itself."""

    model_config = ConfigDict(alias_generator=to_camel, serialize_by_alias=True, extra="allow")

    group: str
    name: str


class NodesShown(Paged):
    nodes: list[NodeShown]


class QueuesShown(Given):
    transactions: Annotated[dict[str, int], Field(description="By list.")]
    bells: Annotated[dict[str, int], Field(description="By node group.")]


class AlertShown(Given):
    id: int
    kind: str
    subject: str
    summary: str
    created_at: datetime


class AlertsShown(Paged):
    alerts: list[AlertShown]


class AlertClosed(Given):
    id: int
    closed: bool


class ApprovalDecisionShown(Given):
    model_config = ConfigDict(alias_generator=to_camel, serialize_by_alias=True, extra="allow")

    by: str
    decision: str


class ApprovalShown(Given):
    model_config = ConfigDict(alias_generator=to_camel, serialize_by_alias=True, extra="allow")

    id: int
    state: str
    action: str
    subject: str
    params: Object
    reason: str | None
    needed: int
    agreed: int
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    executed_at: datetime | None
    decisions: list[ApprovalDecisionShown]


class ApprovalsShown(Paged):
    approvals: list[ApprovalShown]


class ApprovalAsked(Given):
    """The action waits for another person."""

    approval: Annotated[int, Field(description="Its number.")]
    href: str
    detail: str


class AuditActionShown(Given):
    id: int
    at: datetime
    actor: str
    key_id: str | None
    request_id: str | None
    address: str | None
    action: str
    subject: str
    reason: str | None
    details: Any
    position: Annotated[int | None, Field(description="In the chain; null: not sealed yet.")]
    hash: str | None


class AuditActionsShown(Paged):
    actions: list[AuditActionShown]


class StateShown(Given):
    """The transaction as the engine sees it."""

    tx_id: str
    source: Literal["live", "archive"]
    status: str
    version: int
    fence: int
    begun: bool
    group: str | None
    step_type: str | None
    place: str | None
    node: str | None
    wake_time_ms: int | None
    wake_switch: str | None
    switches: dict[str, str]
    cancel: str | None
    problem: str | None
    state: Object


class JournalEntryShown(Given):
    version: int
    before: int
    fence: int
    kind: str
    extra: str
    deltas: list[Object]


class JournalShown(Given):
    tx_id: str
    entries: list[JournalEntryShown]
    faults: list[str]


class LogLineShown(Given):
    cursor: str
    at: datetime
    level: str | None
    step: str | None
    step_type: str | None
    attempt: int | None
    text: Any
    fields: Any


class LogLinesShown(Given):
    tx_id: str
    lines: list[LogLineShown]
    next_cursor: str | None


class UnmaskedApproval(Given):
    id: int
    params: Object


class UnmaskedTransaction(Transaction):
    errors: Any
    approvals: list[UnmaskedApproval]


class DoubtShown(Given):
    tx_id: str
    place: str
    step_type: str
    since_ms: int
    why: str


class DoubtsShown(Paged):
    transactions: list[DoubtShown]


class SlotShown(Given):
    start: int
    counts: list[Object]
    gauges: dict[str, float]


class SeriesShown(Given):
    resolution: Literal["fine", "middle", "coarse"]
    slot_seconds: int
    kept_seconds: int
    slots: list[SlotShown]


class DeliveryShown(Given):
    model_config = ConfigDict(alias_generator=to_camel, serialize_by_alias=True, extra="allow")

    id: str
    tx_id: str
    sequence: Annotated[int | None, Field(description="null of one to an endpoint.")]
    endpoint_id: str | None
    kind: str
    owner: str
    url: str
    state: Literal["pending", "delivered", "dead", "cancelled"]
    attempt_count: int
    next_at: datetime | None
    held: bool
    created_at: datetime
    first_attempt_at: datetime | None
    finished_at: datetime | None
    last_status: int | None
    last_error: str | None


class DeliveriesShown(Paged):
    webhooks: list[DeliveryShown]


class DeliveryAttemptShown(Given):
    attempt: int
    begun_at: datetime
    ended_at: datetime | None
    http_status: int | None
    error: str | None
    took_ms: int | None


class DeliveryWithAttempts(DeliveryShown):
    attempts: list[DeliveryAttemptShown]
