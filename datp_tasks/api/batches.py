"""Routes of batches for outside ledgers."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response

from datp_tasks.api import models
from datp_tasks.api.lists import (
    LIMIT,
    LIMIT_MAX,
    Cursor,
    Limit,
    listed,
    make_cursor,
    read_cursor,
    strange_cursor,
)
from datp_tasks.api.problems import Problem, invalid
from datp_tasks.api.routing import AROUND_BYTES, grants, json_response, router
from datp_tasks.api.serializers import batch_json
from datp_tasks.api.services import caller_of, services_of
from datp_tasks.ledger.batch_types import PAYLOAD_BYTES_MAX, LedgerBatch, Stored
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.model.rights import check_batch, check_read_batches
from datp_tasks.record.feed_places import FeedNames

#: The list of batches, among those whose places are hidden.
BATCHES = "batches"

routes = router(
    "/v1",
    "batches",
    bytes_max=lambda _: PAYLOAD_BYTES_MAX * 4 // 3 + AROUND_BYTES,
)


@routes.post(
    "/batches",
    operation_id="submitBatch",
    status_code=202,
    response_model=models.StoredBatch,
    responses={
        200: {"model": models.StoredBatch, "description": "It was stored before."},
        409: {"description": "The batch id was used before, for other bytes."},
    },
)
@grants("batch:<service>")
async def submit(request: Request, wanted: models.BatchIn) -> Response:
    """Hand in a batch. 202: it is committed and will be submitted, in its turn. 200: it was."""
    services, caller = services_of(request), caller_of(request)
    check_batch(caller.actor, wanted.service)
    try:
        payload = base64.b64decode(wanted.payload, validate=True)
    except (binascii.Error, ValueError):
        raise invalid([{"loc": ("body", "payload"), "msg": "this is not base64"}]) from None
    given: dict[str, Any] = {"batch_id": wanted.batch_id, "owner": caller.owner}
    client, run = services.client, services.threads.run
    try:
        await services.admission.limits.admit(caller.owner)
    except Problem:
        # What was stored before is found before it is refused.
        before = await run(partial(client.batch_before, wanted.service, payload, **given))
        if before is None:
            raise
        stored: Stored = before
    else:
        put = partial(client.submit_batch, wanted.service, payload, **given, by=caller.actor)
        stored = await run(put)
    return json_response(
        {
            "service": stored.service_id,
            "batchId": stored.batch_id,
            "position": stored.seq if caller.is_operator else None,
            "state": str(stored.state),
        },
        200 if stored.duplicate else 202,
        headers={"Location": f"/v1/batches/{stored.service_id}/{stored.batch_id}"},
    )


@routes.get("/batches", operation_id="listBatches", response_model=models.Batches)
@grants("batch:<service>")
async def find(
    request: Request,
    service: Annotated[str | None, Query(max_length=200)] = None,
    state: BatchState | None = None,
    with_final: Annotated[bool, Query(alias="withFinal")] = False,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Batches that are not final, or all, by service and in order."""
    services, caller = services_of(request), caller_of(request)
    check_read_batches(caller.actor, service)
    owner = None if caller.is_operator else caller.owner

    def read() -> tuple[list[LedgerBatch], FeedNames]:
        names = services.waits.streams.feed.names
        found = services.client.batches(
            service_id=service,
            state=state,
            owner=owner,
            with_final=with_final,
            after=_place(cursor, names, is_operator=caller.is_operator),
            rows_max=limit + 1,
        )
        return found, names

    found, names = await services.threads.run(read)
    page, more = found[:limit], None
    if len(found) > limit:
        last = page[-1]
        if names.is_mixed():
            more = make_cursor(last.service_id, last.seq)
        else:
            more = names.hide_row(BATCHES, last.service_id, last.seq)
    shown = [batch_json(each, with_position=caller.is_operator) for each in page]
    return listed("batches", shown, cursor=more, limit=limit)


def _place(cursor: str | None, names: FeedNames, *, is_operator: bool) -> tuple[str, int] | None:
    """Service and position of the last batch of the page before; it need not be there any more.

    Positions count the batches of all owners, so clients get them hidden. In the clear, as the
    release before gave them out, a client could try numbers until it knows those of its batches.
    """
    if cursor is None:
        return None
    place = names.show_row(BATCHES, cursor)
    if place is None and (is_operator or names.reads_old()):
        old = read_cursor(cursor, str, int)
        place = (old[0], old[1]) if old else None
    if place is None:
        raise strange_cursor()
    return place


@routes.get(
    "/batches/{service}/{batchId}/receipts",
    operation_id="listBatchReceipts",
    response_model=models.BatchReceipts,
)
@grants("batch:<service>")
async def receipts(
    request: Request,
    service: Annotated[str, Path(max_length=200)],
    batch_id: Annotated[str, Path(alias="batchId", max_length=200)],
    limit: Limit = LIMIT_MAX,
    cursor: Cursor = None,
) -> Response:
    """What became of each transaction in a batch, as far as its bytes tell which there are."""
    services, caller = services_of(request), caller_of(request)
    check_read_batches(caller.actor, service)
    owner = None if caller.is_operator else caller.owner
    found = await services.threads.run(services.client.batch_receipts, service, batch_id, owner)
    # In the order of the batch, which does not change.
    place = read_cursor(cursor, int)
    start = max(place[0], 0) if place else 0
    end = start + limit
    more = make_cursor(end) if end < len(found) else None
    return listed("receipts", found[start:end], cursor=more, limit=limit)


@routes.get(
    "/batches/{service}/{batchId}", operation_id="getBatch", response_model=models.LedgerBatch
)
@grants("batch:<service>")
async def status(
    request: Request,
    service: Annotated[str, Path(max_length=200)],
    batch_id: Annotated[str, Path(alias="batchId", max_length=200)],
) -> Response:
    """A batch as of now."""
    services, caller = services_of(request), caller_of(request)
    check_read_batches(caller.actor, service)
    owner = None if caller.is_operator else caller.owner
    found = await services.threads.run(services.client.batch, service, batch_id, owner=owner)
    return json_response(batch_json(found, with_position=caller.is_operator))
