"""Routes for acting on many transactions: first look at what would be chosen, then act on that."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.models import EXAMPLE_ID, Given, Long, Object, Sent, Status, Text
from datp_tasks.api.once import keeps
from datp_tasks.api.problems import Problem, invalid
from datp_tasks.api.routing import json_response, router
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import CONFLICT
from datp_tasks.errors import FilterInvalid
from datp_tasks.model.actor import Role
from datp_tasks.model.approval import selection_of
from datp_tasks.model.status import Status as TransactionStatus
from datp_tasks.operator.selection import Where
from datp_tasks.record.record_types import Summary

routes = router("/v1", "operator", role=Role.OPERATOR)

#: More than so many are acted on by several requests, each with its own look.
ITEMS_MAX = 1_000
SAMPLE = 10


class WhereIn(Sent):
    """Which transactions; at least one filter, because all of them are never meant."""

    status: Status | None = None
    pipeline: Text | None = None
    owner: Text | None = None
    group: Annotated[Text | None, Field(description="The node group it is queued for.")] = None
    older_than_seconds: Annotated[float | None, Field(ge=0, le=1e9)] = None
    newer_than_seconds: Annotated[float | None, Field(ge=0, le=1e9)] = None
    attributes: Annotated[
        dict[Text, Text] | None,
        Field(
            min_length=1,
            max_length=10,
            description="Search attributes: name[eq|gt|gte|lt|lte|prefix] and value, all of them.",
            examples=[{"amount[gte]": "100"}],
        ),
    ] = None

    def where(self) -> Where:
        if not self.model_dump(exclude_none=True):
            raise invalid([{"loc": ("body", "where"), "msg": "name at least one filter"}])
        where = Where(
            status=TransactionStatus(self.status) if self.status else None,
            pipeline=self.pipeline,
            owner=self.owner,
            group=self.group,
            older_s=self.older_than_seconds,
            newer_s=self.newer_than_seconds,
            attributes=self.attributes or {},
        )
        try:
            _ = where.conditions
        except FilterInvalid as error:
            raise invalid([{"loc": ("body", "where", "attributes"), "msg": str(error)}]) from None
        return where


class PreviewIn(Sent):
    action: Literal["cancel", "wake", "retry"]
    where: WhereIn


class BulkActionIn(PreviewIn):
    expected_count: Annotated[
        int, Field(ge=0, le=ITEMS_MAX, description="As the preview counted; else 409.")
    ]
    selection: Annotated[Text, Field(description="As the preview named the set; else 409.")]
    reason: Annotated[Long, Field(min_length=1, description="Kept in the audit table.")]
    break_glass: Annotated[
        bool,
        Field(description="Act alone although the policy wants another person; an alert stays."),
    ] = False


class Previewed(Given):
    tx_id: Annotated[str, Field(examples=[EXAMPLE_ID])]
    status: Status
    pipeline: str
    owner: str


class PreviewOut(Given):
    action: str
    where: Object
    count: Annotated[int, Field(description=f"Up to {ITEMS_MAX}, which one request acts on.")]
    selection: Annotated[str, Field(description="Names exactly this set.")]
    more: Annotated[bool, Field(description="There are more than one request acts on.")]
    sample: list[Previewed]


class ActedOn(Given):
    tx_id: str
    ok: bool
    what: Annotated[str, Field(description="What was done, or why nothing was.")]


class BulkActionOut(Given):
    done: int
    failed: int
    results: list[ActedOn]


@routes.post("/bulk-actions/preview", response_model=PreviewOut)
@keeps("again")
async def preview_bulk_action(request: Request, wanted: PreviewIn) -> Response:
    """How many it would act on, and some of them; nothing is done."""
    services = services_of(request)
    where = wanted.where.where()
    chosen, more = await services.threads.run(choose, services, where)
    sample = [
        {
            "txId": each.tx_id,
            "status": str(each.status),
            "pipeline": each.pipeline,
            "owner": each.owner,
        }
        for each in chosen[:SAMPLE]
    ]
    shown = {"action": wanted.action, "where": where.to_json(), "count": len(chosen)}
    selection = selection_of(each.tx_id for each in chosen)
    return json_response({**shown, "selection": selection, "more": more, "sample": sample})


@routes.post("/bulk-actions", response_model=BulkActionOut, responses=CONFLICT)
async def act_on_transactions(request: Request, wanted: BulkActionIn) -> Response:
    """Act on each that matches now. With another number than expected nothing is done."""
    services, actor = services_of(request), caller_of(request).actor
    where = wanted.where.where()

    def act() -> list[dict[str, Any]]:
        chosen, _ = choose(services, where)
        if len(chosen) != wanted.expected_count:
            detail = f"{len(chosen)} match now, and {wanted.expected_count} were expected."
            raise Problem(409, "subject-moved", f"{detail} Look at the preview again.")
        if selection_of(each.tx_id for each in chosen) != wanted.selection:
            detail = "Other transactions match now than in the preview."
            raise Problem(409, "subject-moved", f"{detail} Look at it again.")
        done = services.operator.act_on_many(
            wanted.action,
            where,
            [each.tx_id for each in chosen],
            reason=wanted.reason,
            actor=actor,
            break_glass=wanted.break_glass,
        )
        return [{"txId": each.tx_id, "ok": each.ok, "what": each.what} for each in done]

    results = await services.threads.run(act)
    failed = sum(not each["ok"] for each in results)
    return json_response({"done": len(results) - failed, "failed": failed, "results": results})


def choose(services: Services, where: Where) -> tuple[list[Summary], bool]:
    """What has not ended, up to what one request acts on; and whether there is more."""
    chosen: list[Summary] = []
    for each in services.operator.choose(where, open_only=True):
        if len(chosen) == ITEMS_MAX:
            return chosen, True
        chosen.append(each)
    return chosen, False
