"""What a bulk transfer looks like to its client, and what became of each transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from datp_tasks.errors import ExpiryInvalid
from datp_tasks.live.keys import shard_of_tx
from datp_tasks.model.bulk_transfer import GONE, BulkState, counted, status_without, tx_id_of
from datp_tasks.model.payload import Json
from datp_tasks.record.record_types import Summary
from datp_tasks.timeouts.expiry import moment_of


@dataclass(frozen=True, slots=True)
class BulkTransfer:
    """A bulk as its client sees it, as of now."""

    summary: Summary
    state: BulkState
    expires_at: datetime | None
    #: Each with index, externalId and txId; with status and note, or why it was refused.
    transfers: list[Json]
    #: After a cancel: how many transfers had which outcome, also of those that are not shown.
    cancel_counts: dict[str, int] | None = None

    @property
    def counts(self) -> dict[str, int]:
        return counted(self.transfers)

    def to_json(self) -> Json:
        """As the API tells it."""
        summary = self.summary
        times = {
            "createdAt": summary.created_at,
            "expiresAt": self.expires_at,
            "completedAt": summary.completed_at,
        }
        return {
            "bulkId": summary.tx_id,
            "externalId": summary.external_id,
            "pipeline": summary.pipeline,
            "state": self.state,
            **{name: time and time.isoformat() for name, time in times.items()},
            "counts": self.counts,
            **({} if self.cancel_counts is None else {"cancelCounts": self.cancel_counts}),
            "transfers": self.transfers,
        }


def deadline_in(input: Json) -> datetime | None:
    try:
        return moment_of(input["expiresAt"])
    except (KeyError, ExpiryInvalid):
        return None


def texts_of(transfer: Json, names: Sequence[str]) -> Json:
    return {name: transfer[name] for name in names if isinstance(transfer.get(name), str)}


def standing_of(transfer: Json, known: Mapping[str, Summary], reported: dict[str, str]) -> Json:
    """What became of a transfer so far; of what it says itself only the id."""
    tx_id = tx_id_of(transfer)
    if tx_id is None or not shard_of_tx(tx_id):
        first = transfer.get("duplicateOf")
        is_id = isinstance(first, str) and bool(shard_of_tx(first))
        return {"status": status_without(transfer), **({"duplicateOf": first} if is_id else {})}
    if tx_id not in known:
        return {"txId": tx_id, "status": reported.get(tx_id, GONE)}
    found = known[tx_id]
    shown: Json = {"txId": tx_id, "status": str(found.status)}
    if found.note:
        shown["note"] = found.note
    if found.completed_at is not None:
        shown["completedAt"] = found.completed_at.isoformat()
    return shown
