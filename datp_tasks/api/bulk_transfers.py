"""Bulk transfers: many transactions with one deadline and one report."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api import models
from datp_tasks.api.once import external_id_of
from datp_tasks.api.problems import Problem, invalid
from datp_tasks.api.routing import grants, json_response, router
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import CONFLICT, NEW, REPEATED, TxId, note_read
from datp_tasks.client.bulk_report import BulkTransfer
from datp_tasks.client.requests import Request as Wanted
from datp_tasks.client.requests import Submitted
from datp_tasks.model.rights import check_read, sees_payloads
from datp_tasks.record.database import translate_outage

routes = router("/v1", "transactions", bytes_max=lambda settings: settings.bulk_bytes_max)


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
    count, limit = len(wanted.transfers), services.settings.bulk_items_max
    if count > limit:
        raise invalid([{"loc": ("body", "transfers"), "msg": f"at most {limit} are allowed"}])
    bulk = wanted.request(caller.owner, caller.actor, name=external_id_of(request))
    transfers = [each.request(caller.owner, caller.actor) for each in wanted.transfers]
    bulks = services.client.bulk_transfers
    # First: what is refused as a whole must not use up what its owner may ask for.
    refused: Exception | None = await services.threads.run(bulks.refusal, bulk, transfers)
    if refused is None:
        await services.admission.limits.take(caller.owner, cost=count)
        try:
            await services.admission.limits.admit(caller.owner, count + 1)
        except Problem as over:
            refused = over
    if refused is None:
        answer = await services.threads.run(bulks.submit, bulk, transfers)
    else:
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


async def _accepted_before(
    services: Services, bulk: Wanted, transfers: list[Wanted]
) -> Submitted | None:
    found = await services.threads.run(
        services.client.bulk_transfers.accepted_before, bulk, transfers
    )
    if isinstance(found, Exception):
        raise found
    return found
