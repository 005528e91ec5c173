"""The calls about bulk transfers, as flows: many transfers with one deadline and one report."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from datp_tasks.errors import ApprovalNeeded
from datp_tasks.http import operations
from datp_tasks.http.flows import CallRetry, Flow, Outgoing, call
from datp_tasks.http.replies import (
    BulkReceipt,
    Json,
    RemoteBulkTransfer,
    bulk_transfer_of,
    json_of,
    understood,
)

BULK_TRANSFERS = "/v1/bulk-transfers"
#: Beyond the usual time: a cancel asks up to 1,000 transfers one after another.
CANCEL_EXTRA_S = 60.0


def submit(
    bulk: Json, transfers: Sequence[Json], key: str | None, policy: CallRetry
) -> Flow[BulkReceipt]:
    body = {**bulk, "transfers": list(transfers)}
    found = json_of((yield from operations.post(BULK_TRANSFERS, body, policy, key=key)))
    with understood():
        return BulkReceipt(found["bulkId"], repeated=bool(found["duplicate"]))


def read(bulk_id: str, policy: CallRetry) -> Flow[RemoteBulkTransfer]:
    found = json_of((yield from call(Outgoing("GET", _place(bulk_id)), policy)))
    with understood():
        return bulk_transfer_of(found)


def wait(bulk_id: str, timeout_s: float, policy: CallRetry) -> Flow[RemoteBulkTransfer]:
    yield from operations.wait(bulk_id, timeout_s, policy)
    return (yield from read(bulk_id, policy))


def cancel(
    bulk_id: str, reason: str | None, break_glass: bool, policy: CallRetry
) -> Flow[RemoteBulkTransfer]:
    body: Json = {} if reason is None else {"reason": reason}
    if break_glass:
        body["breakGlass"] = True
    place = f"{_place(bulk_id)}/cancel"
    reply = yield from operations.post(place, body, policy, extra_s=CANCEL_EXTRA_S)
    found = json_of(reply)
    number = found.get("approval")
    if isinstance(number, int) and "href" in found:
        raise ApprovalNeeded(str(found.get("detail")), approval_id=number)
    with understood():
        return bulk_transfer_of(found)


def _place(bulk_id: str) -> str:
    return f"{BULK_TRANSFERS}/{quote(bulk_id, safe='')}"
