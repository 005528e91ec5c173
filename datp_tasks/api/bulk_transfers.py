"""Bulk transfers: many transactions with one deadline and one report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from fastapi import Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api import models
from datp_tasks.api.bulk_submit import BULK_BYTES_MAX
from datp_tasks.api.once import external_id_of, keeps
from datp_tasks.api.problems import Problem, invalid
from datp_tasks.api.routing import grants, json_response, router
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import CONFLICT, NEW, REPEATED, TxId, access_of, note_read
from datp_tasks.client.bulk_cancel import CancelOutcome, StopMany
from datp_tasks.client.bulk_report import BulkTransfer
from datp_tasks.client.bulk_transfers import ITEMS_MAX
from datp_tasks.client.requests import Request as Wanted
from datp_tasks.client.requests import Submitted
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.rights import check_cancel, check_read, sees_payloads
from datp_tasks.operator.selection import TransfersOfBulk
from datp_tasks.record.database import translate_outage
from datp_tasks.record.record_types import Summary

routes = router("/v1", "transactions", bytes_max=lambda _: BULK_BYTES_MAX)


class BulkTransferIn(models.TransactionIn):
    pipeline: Annotated[
        models.Text,
        Field(examples=["bulk-transfer"], description="One with the step util/bulk-transfer."),
    ]
    input: Annotated[
        models.Object,
        Field(
            default_factory=dict,
            description="What the pipeline of the bulk gets beside the transfers.",
        ),
    ]
    transfers: Annotated[
        list[models.TransactionIn],
        # No setting allows more, and each that is checked here holds up the other requests.
        Field(min_length=1, max_length=5_000, description="Each is a transaction."),
    ]


class BulkTransferAccepted(models.Given):
    bulk_id: Annotated[str, Field(pattern=models.TX_ID, examples=[models.EXAMPLE_ID])]
    duplicate: Annotated[bool, Field(description="It was accepted before.")]


class TransferShown(models.Given):
    index: Annotated[int, Field(description="Its place in the request, from 0.")]
    external_id: str | None = None
    tx_id: str | None = None
    status: models.Status | Literal["refused", "duplicate", "gone"]
    note: str | None = None
    completed_at: datetime | None = None
    problem: Annotated[str | None, Field(description="Why it was refused.")] = None
    duplicate_of: Annotated[
        str | None, Field(description="The transaction that it was accepted as before.")
    ] = None


class BulkCancelIn(models.CancelIn):
    break_glass: Annotated[
        bool,
        Field(
            description="Of an operator: act alone although the policy wants another person; an "
            "alert stays."
        ),
    ] = False

    def check_reason(self, actor: Actor) -> None:
        """The audit must not say of an operator that the owner wanted it."""
        is_given = "reason" in self.model_fields_set and self.reason.strip()
        if not is_given and (self.break_glass or actor.has(Role.OPERATOR)):
            raise invalid([{"loc": ("body", "reason"), "msg": "an operator says why"}])


class BulkTransferShown(models.Given):
    bulk_id: Annotated[str, Field(pattern=models.TX_ID, examples=[models.EXAMPLE_ID])]
    external_id: str | None
    pipeline: str
    state: Literal["RECEIVED", "PROCESSING", "EXPIRING", "COMPLETED", "EXPIRED"]
    created_at: datetime
    expires_at: Annotated[datetime | None, Field(description="Of all transfers, at the latest.")]
    completed_at: datetime | None
    counts: Annotated[dict[str, int], Field(description="Transfers by status.")]
    transfers: list[TransferShown]


class CancelledTransfer(TransferShown):
    cancel: Annotated[
        CancelOutcome,
        Field(
            description="`cancelled`: it has ended so. `stopping`: it is asked to stop; it goes on "
            "if its current step passes its point of no return. `waiting`: it is not asked yet; a "
            "job goes on with what was approved. `ended`: it had ended otherwise. `no-return`: it "
            "is past its point of no return, or forwarded, and goes on. `refused`: `cancelNote` "
            "says why. `none`: it has no transaction in this bulk."
        ),
    ]
    cancel_note: str | None = None


class BulkTransferCancelled(BulkTransferShown):
    cancel_counts: Annotated[
        dict[str, int],
        Field(description="Transfers by what became of the cancel, also of those not shown."),
    ]
    transfers: list[CancelledTransfer]  # type: ignore[assignment]


@routes.post(
    "/bulk-transfers",
    operation_id="submitBulkTransfer",
    status_code=NEW,
    response_model=BulkTransferAccepted,
    responses={
        200: {"model": BulkTransferAccepted, "description": "It was accepted before."},
        **CONFLICT,
    },
)
@grants("submit:<pipeline>")
async def submit_bulk_transfer(request: Request, wanted: BulkTransferIn) -> Response:
    """Hand in a bulk. It and its transfers are accepted by one commit, and expire together."""
    services, caller = services_of(request), caller_of(request)
    count, limit = len(wanted.transfers), ITEMS_MAX
    if count > limit:
        raise invalid([{"loc": ("body", "transfers"), "msg": f"at most {limit} are allowed"}])
    bulk = wanted.request(caller.owner, caller.actor, name=external_id_of(request))
    transfers = [each.request(caller.owner, caller.actor) for each in wanted.transfers]
    bulks = services.client.bulk_transfers
    # First: what is refused as a whole must not use up what its owner may ask for.
    refused: Exception | None = await services.threads.run(bulks.refusal, bulk, transfers)
    if refused is None:
        limits = services.admission.limits
        await limits.take(caller.owner, cost=count)
        try:
            async with limits.admitted(caller.owner, taken=count, count=count + 1):
                answer = await services.threads.run(bulks.submit, bulk, transfers)
        except Problem as over:
            refused = over
    if refused is not None:
        # Only what was accepted before: a client that is told "refused" pays elsewhere.
        before = await _accepted_before(services, bulk, transfers)
        if before is None:
            raise refused
        answer = before
    return json_response(
        {"bulkId": answer.tx_id, "duplicate": answer.duplicate},
        REPEATED if answer.duplicate else NEW,
        headers={"Location": f"/v1/bulk-transfers/{answer.tx_id}"},
    )


@routes.get(
    "/bulk-transfers/{txId}", operation_id="getBulkTransfer", response_model=BulkTransferShown
)
@grants("read")
async def bulk_transfer(request: Request, tx_id: TxId) -> Response:
    """The state of a bulk, and what became of each of its transfers so far."""
    services, caller = services_of(request), caller_of(request)
    check_read(caller.actor)
    summary = await services.look(caller, tx_id)
    await note_read(request, "bulk-transfer.read", tx_id, [summary])
    shown = await services.shown(caller, summary)

    def read() -> BulkTransfer:
        with translate_outage():
            return services.client.bulk_transfers.view(
                shown, with_payloads=sees_payloads(caller.actor)
            )

    return json_response((await services.threads.run(read)).to_json())


@routes.post(
    "/bulk-transfers/{txId}/cancel",
    operation_id="cancelBulkTransfer",
    status_code=202,
    response_model=BulkTransferCancelled,
    responses={
        200: {"model": BulkTransferCancelled, "description": "Each transfer has ended."},
        **CONFLICT,
    },
)
@grants("cancel")
@keeps("again")
async def cancel_bulk_transfer(
    request: Request, tx_id: TxId, wanted: BulkCancelIn | None = None
) -> Response:
    """Take back each transfer that still can be, and say what became of that for each.

    What is past its point of no return goes on. Of an operator the policy may want the approval of
    another person.
    """
    services, caller = services_of(request), caller_of(request)
    wanted = wanted or BulkCancelIn()
    actor, access, owner = await access_of(request, tx_id)
    check_cancel(actor, access, owner)
    wanted.check_reason(actor)
    bulks = services.client.bulk_cancel
    to_ask = await services.threads.run(bulks.to_ask, tx_id)
    stop: StopMany | None = None
    if actor.has(Role.OPERATOR):
        stop = partial(_stop_as_operator, services, tx_id, actor, wanted.reason, wanted.break_glass)
    elif to_ask:
        await services.admission.limits.take(caller.owner, cost=len(to_ask))
    done = await services.threads.run(
        partial(bulks.ask, tx_id, to_ask, wanted.reason, by=actor, stop=stop)
    )
    summary = await services.look(caller, tx_id)
    await note_read(request, "bulk-transfer.read", tx_id, [summary])
    shown = await services.shown(caller, summary)

    def read() -> BulkTransfer:
        with translate_outage():
            return services.client.bulk_transfers.view(
                shown, with_payloads=sees_payloads(actor), known=done.bulk.known
            )

    told = done.told(await services.threads.run(read))
    return json_response(told.to_json(), 202 if done.goes_on else 200)


def _stop_as_operator(
    services: Services,
    bulk_id: str,
    actor: Actor,
    reason: str,
    break_glass: bool,
    transfers: Sequence[Summary],
) -> dict[str, str]:
    """As any action on many transactions of others, which the policy may want approved."""
    done = services.operator.act_on_many(
        "cancel",
        TransfersOfBulk(bulk_id),
        [each.tx_id for each in transfers],
        reason=reason,
        actor=actor,
        break_glass=break_glass,
    )
    return {each.tx_id: each.what for each in done if not each.ok}


async def _accepted_before(
    services: Services, bulk: Wanted, transfers: list[Wanted]
) -> Submitted | None:
    found = await services.threads.run(
        services.client.bulk_transfers.accepted_before, bulk, transfers
    )
    if isinstance(found, Exception):
        raise found
    return found
