"""Routes of audits and erasures: a request orders one, a job does it, and it says how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.lists import LIMIT, Cursor, Limit, listed, page_of_more, read_cursor
from datp_tasks.api.models import EXAMPLE_ID, Given, Long, Paged, Sent, Text
from datp_tasks.api.once import keeps
from datp_tasks.api.operator_models import ApprovalAsked
from datp_tasks.api.problems import invalid, not_found
from datp_tasks.api.routing import json_response, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import caller_of, services_of
from datp_tasks.api.transactions import CONFLICT
from datp_tasks.model.actor import Role
from datp_tasks.operator.erase import Chosen
from datp_tasks.record.operator_runs import OperatorRun, RunKind, RunState

audits = router("/v1", "operator", role=Role.OPERATOR)
erasures = router("/v1", "operator", role=Role.ADMIN)

#: PostgreSQL's bigint.
Number = Annotated[int, Path(ge=1, lt=2**63)]
SAMPLE = 1_000
#: The places of a sample are in the memory of a worker.
SAMPLE_MAX = 1_000_000


class AuditIn(Sent):
    sample: Annotated[
        int | None,
        Field(ge=1, le=SAMPLE_MAX, description=f"So many, chosen at random; {SAMPLE} by default."),
    ] = None
    everything: Annotated[bool, Field(description="All transactions, instead of a sample.")] = False
    seed: Annotated[
        int, Field(ge=0, lt=2**31, description="The same seed takes the same sample.")
    ] = 0


class Misfit(Given):
    tx_id: Annotated[str, Field(examples=[EXAMPLE_ID])]
    faults: list[str]


class RunShown(Given):
    id: int
    state: Annotated[
        RunState, Field(description="failed: `note` says why, and what was done is counted.")
    ]
    requested_by: str
    created_at: datetime
    ended_at: datetime | None
    note: str | None


class AuditShown(RunShown):
    sample: Annotated[int | None, Field(description="null: all transactions.")]
    seed: int
    total: Annotated[int, Field(description="Transactions there were when it began.")]
    audited: int
    dropped: Annotated[int, Field(description="Without a journal any more, as retention says.")]
    wrong: Annotated[int, Field(description="Whose journals do not lead to what we have.")]
    misfits: Annotated[list[Misfit], Field(description="The first 100 of them.")]


class AuditsShown(Paged):
    audits: list[AuditShown]


class SubjectIn(Sent):
    pointer: Annotated[
        Text, Field(pattern=r"^/[^=\x00]*$", description="A JSON pointer.", examples=["/customer"])
    ]
    value: Annotated[
        Long,
        Field(min_length=1, description="A number as JSON writes it.", examples=["ann"]),
    ]


class ChosenIn(Sent):
    """All of an owner, one external id of an owner, or a subject (of an owner, or of all)."""

    owner: Annotated[Text | None, Field(min_length=1)] = None
    external_id: Annotated[
        str | None, Field(min_length=1, max_length=255, pattern=r"^[^\x00]*$")
    ] = None
    subject: Annotated[
        SubjectIn | None, Field(description="Looked for in input, metadata and output.")
    ] = None

    def chosen(self) -> Chosen:
        given = self.subject
        subject = None if given is None else f"{given.pointer}={given.value}"
        return Chosen(owner=self.owner, external_id=self.external_id, subject=subject)


class ErasureIn(ChosenIn):
    reason: Annotated[
        Long,
        Field(min_length=1, description="Kept in the audit table; it must not name the value."),
    ]


class ErasureCounted(Given):
    count: int
    more: Annotated[bool, Field(description="There are more; it was not counted to the end.")]


class Refusal(Given):
    tx_id: Annotated[str, Field(examples=[EXAMPLE_ID])]
    why: str


class ErasureShown(RunShown):
    owner: str | None
    external_id: str | None
    subject: Annotated[
        str | None, Field(description="Its pointer; the value is not kept.", examples=["/name"])
    ]
    reason: str
    approval: Annotated[int | None, Field(description="The approval that was used for it.")]
    erased: int
    refused: int
    refusals: Annotated[list[Refusal], Field(description="The first 100, with what to do.")]
    batches: Annotated[int, Field(description="Batches for ledgers of the whole owner.")]
    kept_answers: Annotated[int, Field(description="Kept answers of the whole owner.")]
    data_keys: Annotated[int, Field(description="Data keys of the whole owner.")]


class ErasuresShown(Paged):
    erasures: list[ErasureShown]


@audits.post(
    "/audits",
    operation_id="startAudit",
    status_code=202,
    response_model=AuditShown,
    responses=CONFLICT,
)
async def start_audit(request: Request, wanted: AuditIn) -> Response:
    """Replay many transactions, and compare what their journals lead to with what we have.

    A job does that in parts; the answer's `Location` says how far it is. One at a time.
    """
    if wanted.everything and wanted.sample is not None:
        raise invalid([{"loc": ("body", "sample"), "msg": "give sample or everything, not both"}])
    services, actor = services_of(request), caller_of(request).actor
    sample = None if wanted.everything else wanted.sample or SAMPLE
    start = partial(services.operator.runs.start_audit, sample=sample, seed=wanted.seed)
    return _started("audits", audit_json(await services.threads.run(partial(start, actor=actor))))


@audits.get("/audits", operation_id="listAudits", response_model=AuditsShown)
async def list_audits(request: Request, limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """Audits that were started over HTTP, the newest first."""
    return await _page(request, "audit", audit_json, limit, cursor)


@audits.get("/audits/{number}", operation_id="getAudit", response_model=AuditShown)
async def get_audit(request: Request, number: Number) -> Response:
    """How far an audit is, and what it found."""
    return json_response(audit_json(await _one(request, "audit", number)))


@erasures.post("/erasures/preview", operation_id="previewErasure", response_model=ErasureCounted)
@keeps("again")
async def preview_erasure(request: Request, wanted: ChosenIn) -> Response:
    """How many transactions would lose their payloads; nothing is done.

    The audit says who asked, and for which pointer.
    """
    services = services_of(request)
    count = partial(services.operator.runs.preview_erasure, actor=caller_of(request).actor)
    found = await services.threads.run(count, wanted.chosen())
    return json_response({"count": found.count, "more": found.more})


@erasures.post(
    "/erasures",
    operation_id="startErasure",
    status_code=202,
    response_model=ErasureShown | ApprovalAsked,
    responses=CONFLICT,
)
async def start_erasure(request: Request, wanted: ErasureIn) -> Response:
    """Take away what transactions were about; ids, statuses, times and hashes stay.

    Where the policy wants a second person (it does by default), the answer names the approval: send
    the same request again when that is given. Then a job does it in parts, and the answer's
    `Location` says how far it is. Only what has ended; one erasure at a time. It cannot be undone.
    """
    services, actor = services_of(request), caller_of(request).actor
    start = partial(services.operator.runs.start_erasure, wanted.chosen(), reason=wanted.reason)
    found = await services.threads.run(partial(start, actor=actor))
    return _started("erasures", erasure_json(found))


@erasures.get("/erasures", operation_id="listErasures", response_model=ErasuresShown)
async def list_erasures(request: Request, limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """Erasures that were ordered over HTTP, the newest first."""
    return await _page(request, "erasure", erasure_json, limit, cursor)


@erasures.get("/erasures/{number}", operation_id="getErasure", response_model=ErasureShown)
async def get_erasure(request: Request, number: Number) -> Response:
    """How far an erasure is, and what could not be erased."""
    return json_response(erasure_json(await _one(request, "erasure", number)))


def _started(name: str, shown: dict[str, Any]) -> Response:
    return json_response(shown, 202, {"Location": f"/v1/{name}/{shown['id']}"})


async def _one(request: Request, kind: RunKind, number: int) -> OperatorRun:
    services = services_of(request)
    found = await services.threads.run(services.operator.runs.one, kind, number)
    if found is None:
        raise not_found(f"such {kind}")
    return found


async def _page(
    request: Request,
    kind: RunKind,
    to_json: Callable[[OperatorRun], dict[str, Any]],
    limit: int,
    cursor: str | None,
) -> Response:
    place = read_cursor(cursor, int)
    before = None if place is None else place[0]
    read = partial(services_of(request).operator.runs.page, kind, before=before)
    found = await services_of(request).threads.run(partial(read, rows_max=limit + 1))
    page, more = page_of_more(found, lambda each: (each.id,), limit)
    return listed(f"{kind}s", [to_json(each) for each in page], cursor=more, limit=limit)


def audit_json(run: OperatorRun) -> dict[str, Any]:
    done = run.progress
    return {
        **_run_json(run),
        **{name: run.params[name] for name in ("sample", "seed", "total")},
        **{name: done[name] for name in ("audited", "dropped", "wrong")},
        "misfits": done["named"],
    }


def erasure_json(run: OperatorRun) -> dict[str, Any]:
    chosen: Mapping[str, Any] = run.params["chosen"]
    done = run.progress
    return {
        **_run_json(run),
        **{name: chosen.get(name) for name in ("owner", "externalId", "subject")},
        "reason": run.reason,
        "approval": run.params["allowed"].get("approval"),
        **{name: done.get(name, 0) for name in ("erased", "refused")},
        "refusals": done["named"],
        **{name: done.get(name, 0) for name in ("batches", "keptAnswers", "dataKeys")},
    }


def _run_json(run: OperatorRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "state": str(run.state),
        "requestedBy": run.actor.name,
        "createdAt": time_text(run.created_at),
        "endedAt": time_text(run.ended_at),
        "note": run.note,
    }
