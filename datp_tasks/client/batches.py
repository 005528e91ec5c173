"""Batches for outside ledgers, as a client sees them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from datp_tasks.errors import LedgerError, WaitTimeout
from datp_tasks.ledger.batch_types import BatchAttempt, LedgerBatch, Service, Sighting, Stored
from datp_tasks.ledger.intake import Intake
from datp_tasks.ledger.kinds import KINDS, receipts_of
from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.record.database import translate_outage
from datp_tasks.record.ledger_batches import BatchStore

LOOK_EVERY_S = 0.1


class LedgerBatches:
    def __init__(self, *, intake: Intake, batches: BatchStore) -> None:
        self._intake = intake
        self._batches = batches

    def add_service(
        self, service_id: str, *, kind: str, url: str, secret: str | None = None
    ) -> Service:
        with translate_outage():
            return self._intake.add_service(service_id, kind=kind, url=url, secret=secret)

    def submit_many(
        self,
        wanted: Sequence[tuple[str, bytes, str | None]],
        *,
        owner: str,
        by: Actor | None = None,
    ) -> list[Stored | LedgerError]:
        with translate_outage():
            return self._intake.submit_many(wanted, owner=owner, by=by)

    def stored_before(
        self, wanted: tuple[str, bytes, str | None], *, owner: str
    ) -> Stored | LedgerError | None:
        with translate_outage():
            return self._intake.stored_before(wanted, owner=owner)

    def find(self, service_id: str, batch_id: str, *, owner: str | None) -> LedgerBatch:
        with translate_outage():
            return self._batches.find(service_id, batch_id, owner=owner)

    def receipts(
        self, service_id: str, batch_id: str, *, owner: str | None
    ) -> list[dict[str, str | None]]:
        with translate_outage():
            batch = self._batches.find(service_id, batch_id, owner=owner)
            payload = self._batches.payload(service_id, batch_id, owner=owner)
            kinds = {each.service_id: each.kind for each in self._batches.services([service_id])}
        kind = KINDS.get(kinds.get(service_id, ""))
        return [] if kind is None else receipts_of(kind, payload, batch.state, batch.receipt)

    def list_batches(
        self,
        *,
        service_id: str | None,
        state: BatchState | None,
        owner: str | None,
        with_final: bool,
        after: tuple[str, int] | None,
        rows_max: int,
    ) -> list[LedgerBatch]:
        with translate_outage():
            return self._batches.list_batches(
                service_id=service_id,
                state=state,
                owner=owner,
                with_final=with_final,
                after=after,
                rows_max=rows_max,
            )

    def history(self, service_id: str, batch_id: str) -> tuple[list[BatchAttempt], list[Sighting]]:
        with translate_outage():
            attempts = self._batches.attempts(service_id, batch_id)
            return attempts, self._batches.sightings(service_id, batch_id)

    def wait(self, service_id: str, batch_id: str, timeout_s: float) -> LedgerBatch:
        give_up_s = time.monotonic() + timeout_s
        while True:
            found = self.find(service_id, batch_id, owner=None)
            if found.is_final:
                return found
            left_s = give_up_s - time.monotonic()
            if left_s <= 0:
                raise WaitTimeout(f"the batch is still {found.state} after {timeout_s:g} s")
            time.sleep(min(left_s, LOOK_EVERY_S))
