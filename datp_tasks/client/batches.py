"""What the client can do with batches for outside ledgers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from datp_tasks.errors import LedgerError, WaitTimeout
from datp_tasks.ledger.types import Attempt, Batch, Service, Sighting, Stored
from datp_tasks.model.batch import BatchState
from datp_tasks.record.database import translate_outage
from datp_tasks.runtime.container import Container

LOOK_EVERY_S = 0.1


class BatchMethods:
    """Part of the client."""

    _connections: Container

    def add_service(self, service_id: str, *, kind: str, url: str) -> Service:
        """Make a line of batches to a ledger, or give it another address.

        Its batches reach the ledger one at a time, in the order in which they were submitted.
        """
        with translate_outage():
            return self._connections.ledger.intake.add_service(service_id, kind=kind, url=url)

    def submit_batch(
        self, service_id: str, payload: bytes, *, batch_id: str | None = None, owner: str = "local"
    ) -> Stored:
        """Hand in a batch. When this returns it is committed and will not be lost.

        The same bytes again give the first answer again; other bytes under the same id raise
        BatchConflict. What is wrong with a batch is raised as ServiceUnknown or BatchInvalid.
        """
        answer = self.submit_batches([(service_id, payload, batch_id)], owner=owner)[0]
        if isinstance(answer, LedgerError):
            raise answer
        return answer

    def submit_batches(
        self, wanted: Sequence[tuple[str, bytes, str | None]], *, owner: str = "local"
    ) -> list[Stored | LedgerError]:
        """Hand in many at once, as (service, payload, batch id or None), in this order.

        One that is not acceptable does not hold up the others.
        """
        with translate_outage():
            return self._connections.ledger.intake.submit_many(wanted, owner=owner)

    def batch(self, service_id: str, batch_id: str, *, owner: str | None = None) -> Batch:
        """A batch as of now, or BatchUnknown; with an owner, only one of theirs."""
        with translate_outage():
            return self._connections.ledger.batches.find(service_id, batch_id, owner=owner)

    def batches(
        self,
        *,
        service_id: str | None = None,
        state: BatchState | None = None,
        owner: str | None = None,
        with_final: bool = False,
        rows_max: int = 100,
    ) -> list[Batch]:
        """Batches that are not final, or all, by service and in order."""
        with translate_outage():
            return self._connections.ledger.batches.list_batches(
                service_id=service_id,
                state=state,
                owner=owner,
                with_final=with_final,
                rows_max=rows_max,
            )

    def batch_history(self, service_id: str, batch_id: str) -> tuple[list[Attempt], list[Sighting]]:
        """Every submission of a batch, and every state in which it was seen."""
        with translate_outage():
            store = self._connections.ledger.batches
            return store.attempts(service_id, batch_id), store.sightings(service_id, batch_id)

    def wait_batch(self, service_id: str, batch_id: str, timeout_s: float = 60.0) -> Batch:
        """Wait until a batch is final, or raise WaitTimeout; it goes on regardless."""
        give_up_s = time.monotonic() + timeout_s
        while True:
            found = self.batch(service_id, batch_id)
            if found.is_final:
                return found
            left_s = give_up_s - time.monotonic()
            if left_s <= 0:
                raise WaitTimeout(f"the batch is still {found.state} after {timeout_s:g} s")
            time.sleep(min(left_s, LOOK_EVERY_S))
