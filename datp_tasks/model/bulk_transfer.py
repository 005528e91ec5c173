"""A bulk transfer: many transactions with one deadline and one report, in the words of Mojaloop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from datp_tasks.model.payload import Json
from datp_tasks.model.status import Status

#: The step type that a bulk waits in until each of its transfers has ended.
STEP_TYPE = "util/bulk-transfer"

BulkState = Literal["RECEIVED", "PROCESSING", "EXPIRING", "COMPLETED", "EXPIRED"]
#: Of a transfer whose row retention has dropped before its bulk could look.
GONE = "gone"
#: Of a transfer that could not be accepted, so that there is no transaction.
REFUSED = "refused"
#: Of a transfer that was accepted before, outside of this bulk: it is paid there, once.
DUPLICATE = "duplicate"


def bulk_state(statuses: Sequence[str], *, is_over: bool, is_overdue: bool = False) -> BulkState:
    """From the statuses of its transfers; `is_over`: the bulk itself has ended."""
    has_expired = str(Status.EXPIRED) in statuses
    if is_over:
        return "EXPIRED" if has_expired else "COMPLETED"
    if has_expired or is_overdue:
        return "EXPIRING"
    is_new = set(statuses) <= {str(Status.QUEUED), REFUSED, DUPLICATE}
    return "RECEIVED" if is_new else "PROCESSING"


def has_ended(status: str) -> bool:
    return status in (GONE, REFUSED, DUPLICATE) or Status(status).is_final


def is_transfer_status(value: object) -> bool:
    """Whether a report may say so of a transfer: any client can write one into its input."""
    return isinstance(value, str) and (value in (GONE, REFUSED, DUPLICATE) or value in set(Status))


def transfers_of(input: Json) -> list[Json]:
    """What a bulk was made of, as its input has it; nothing where that is masked or erased."""
    given = input.get("transfers")
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def tx_id_of(transfer: Json) -> str | None:
    """The transaction of a transfer; None if it was refused, or its entry names no id."""
    found = transfer.get("txId")
    return found if found and isinstance(found, str) else None


def ids_of(transfers: Iterable[Json]) -> list[str]:
    return [tx_id for each in transfers if (tx_id := tx_id_of(each))]


def status_without(transfer: Json) -> str:
    """Of a transfer that has no transaction in this bulk."""
    return DUPLICATE if "duplicateOf" in transfer else REFUSED


def counted(transfers: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many transfers have each status."""
    return dict(sorted(Counter(each["status"] for each in transfers).items()))
