"""What Mojaloop's design calls a state of a transfer, from what the log of state changes says."""

from __future__ import annotations

from datp_tasks.model.status import Status

#: Where a row of the log has no name of its own (its `detail`), its status has.
OF_STATUS = {
    Status.QUEUED: "RECEIVED_PREPARE",
    Status.SUCCESS: "COMMITTED",
    Status.FAILED: "ABORTED_REJECTED",
    Status.ABORTED: "ABORTED_ERROR",
    Status.CANCELLED: "ABORTED_REJECTED",
    Status.INTERNAL_ERROR: "FAILED",
    Status.EXPIRED: "EXPIRED_PREPARED",
}


def transfer_state(status: str, detail: str | None) -> str:
    """RECEIVED_PREPARE, RECEIVED_FULFIL, COMMITTED, …; what is in doubt has no such name."""
    return detail or OF_STATUS.get(Status(status), status)
