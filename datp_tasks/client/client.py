"""The Python client: submit transactions, look at them, send them signals.

It needs Redis, PostgreSQL and the broker, but no worker, so a web process can hold one. Threads
may share a client. What people decide about transactions is in `datp_tasks.operator`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from datp_tasks.client.batches import LedgerBatches
from datp_tasks.client.bulk_cancel import BulkCancel
from datp_tasks.client.bulk_transfers import BulkTransfers
from datp_tasks.client.reads import Reader
from datp_tasks.client.requests import Request, Submitted
from datp_tasks.client.submit import Before, RequestAcceptor
from datp_tasks.client.submit_in import CallerSubmits
from datp_tasks.errors import (
    DatpError,
    LedgerError,
    PipelineError,
    RequestError,
)
from datp_tasks.ledger.batch_types import BatchAttempt, LedgerBatch, Service, Sighting, Stored
from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.record.bulk_transfers import BulkRecord
from datp_tasks.record.record_types import Precondition, Summary
from datp_tasks.settings import Settings
from datp_tasks.transactions.send_signals import SignalSender


class Client:
    """One connection to the whole system, for any number of threads."""

    def __init__(
        self,
        *,
        acceptor: RequestAcceptor,
        caller_submits: CallerSubmits,
        reader: Reader,
        signals: SignalSender,
        batches: LedgerBatches,
        close: Callable[[], None],
    ) -> None:
        self._acceptor = acceptor
        self._caller_submits = caller_submits
        self._reader = reader
        self._signals = signals
        self._batches = batches
        #: Many transactions with one deadline and one report.
        self.bulk_transfers = BulkTransfers(acceptor, BulkRecord(acceptor.record), reader)
        self.bulk_cancel = BulkCancel(self.bulk_transfers, signals, acceptor.preparer.catalogue)
        self._close = close

    @classmethod
    def from_settings(cls, settings: Settings | None = None) -> Client:
        """A client of the servers that the settings (or the environment) name."""
        # The one place where a room knows the wiring: a user opens a client by its own name.
        from datp_tasks.runtime.clients import open_client

        return open_client(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._caller_submits.close()
        self._reader.close()
        self._close()

    # Submitting.

    def submit(
        self,
        pipeline: str,
        input: Mapping[str, Any],
        *,
        owner: str = "local",
        external_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: datetime | str | None = None,
        expires_in_s: float | None = None,
        webhook: str | None = None,
        progress_reports: bool = False,
        cancel_webhook_on_poll: bool = False,
        language: str | None = None,
        by: Actor | None = None,
    ) -> Submitted:
        """Hand in a transaction. When this returns it is committed and will not be lost.

        The same external id with the same request gives the first transaction again; with
        another request it raises ExternalIdConflict. One that is not over when it expires is
        rolled back and ends as `expired`. The webhook is told of the end and, if
        `progress_reports`, of every progress report. `language` (as in Accept-Language) is
        for pipelines with texts by language. `by` is who hands it in, for its row; the
        actor must have the right to.
        """
        request = Request(
            pipeline=pipeline,
            input=input,
            owner=owner,
            external_id=external_id,
            metadata=metadata,
            expires_at=expires_at,
            expires_in_s=expires_in_s,
            webhook=webhook,
            progress_reports=progress_reports,
            cancel_webhook_on_poll=cancel_webhook_on_poll,
            language=language,
            by=by,
        )
        answer = self.submit_many([request])[0]
        if isinstance(answer, DatpError):
            raise answer
        return answer

    def submit_many(
        self, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        """Hand in many at once; one bad request does not hold up the others.

        Answers come in the order of the requests. Thousands per call are fine.
        """
        return self._acceptor.submit_many(requests)

    def submit_in(
        self, connection: object, pipeline: str, input: Mapping[str, Any], **options: Any
    ) -> Submitted:
        """Hand in a transaction as part of the caller's SQL transaction: it is accepted if, and
        only if, the caller commits. The options are those of `submit`.

        The connection leads to the database of DATP Tasks: a Connection or Session of SQLAlchemy,
        a connection of psycopg2 or psycopg, or Django's. What is refused is raised and leaves the
        caller's transaction usable. It starts within milliseconds of the commit; if this process
        dies before, within seconds.
        """
        request = Request(pipeline=pipeline, input=input, **options)
        answer = self.submit_many_in(connection, [request])[0]
        if isinstance(answer, DatpError):
            raise answer
        return answer

    def submit_many_in(
        self, connection: object, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        """The same for many; one bad request does not hold up the others."""
        return self._caller_submits.submit_many(connection, requests)

    async def submit_in_async(
        self, connection: object, pipeline: str, input: Mapping[str, Any], **options: Any
    ) -> Submitted:
        """`submit_in` over a connection whose statements are awaited: an AsyncConnection of
        psycopg, or an AsyncConnection or AsyncSession of SQLAlchemy over it. The event loop goes
        on meanwhile; if the call is cancelled, nothing is sent over the connection afterwards."""
        request = Request(pipeline=pipeline, input=input, **options)
        (answer,) = await self.submit_many_in_async(connection, [request])
        if isinstance(answer, DatpError):
            raise answer
        return answer

    async def submit_many_in_async(
        self, connection: object, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        """The same for many; one bad request does not hold up the others."""
        return await self._caller_submits.submit_many_async(connection, requests)

    def place_committed(self) -> None:
        """Start what callers of `submit_in` have committed by now, without waiting for the thread
        that looks for it. A process that is about to end, or has no threads, may call this."""
        self._caller_submits.place_committed()

    def accepted_before(self, requests: Sequence[Request]) -> list[Before | None]:
        """What was accepted under the external ids of these requests, without submitting them."""
        return self._acceptor.accepted_before(requests)

    # Looking.

    def status(self, tx_id: str) -> Summary:
        """The transaction as its client sees it, as of now."""
        return self._reader.status(tx_id)

    def status_many(self, tx_ids: Sequence[str]) -> list[Summary | None]:
        """The same for many, in two round trips; None for one that is unknown."""
        return self._reader.status_many(tx_ids)

    def overlay_many(self, summaries: Sequence[Summary]) -> list[Summary]:
        """Rows of the record that were read before, as of now."""
        return self._reader.overlay_many(summaries)

    def find(self, owner: str, external_id: str) -> Summary:
        """The transaction that an owner submitted under this external id."""
        return self._reader.find(owner, external_id)

    def wait(self, tx_id: str, timeout_s: float = 60.0) -> Summary:
        """Wait until the transaction has ended, or raise WaitTimeout; it goes on regardless.

        An outage of PostgreSQL in the meantime is waited for like everything else.
        """
        return self._reader.wait(tx_id, timeout_s)

    # Signals. The audit names `by`, if one is given. With `only_if` nothing is done, and
    # TransactionMoved raised, unless the transaction is so when the signal takes hold of it.

    def set_switch(
        self,
        tx_id: str,
        name: str,
        value: bool | int | float | str | None,
        *,
        by: Actor | None = None,
        only_if: Precondition | None = None,
        reason: str = "",
    ) -> bool:
        """Set a switch; True if that woke the transaction. None removes the switch."""
        send = self._signals.set_switch
        return send(tx_id, name, value, by=by, only_if=only_if, reason=reason)

    def wake(
        self,
        tx_id: str,
        *,
        by: Actor | None = None,
        only_if: Precondition | None = None,
        reason: str = "",
    ) -> bool:
        """End a sleep early; False if it does not sleep."""
        return self._signals.wake(tx_id, by=by, only_if=only_if, reason=reason)

    def cancel(
        self,
        tx_id: str,
        reason: str = "cancelled by its owner",
        *,
        by: Actor | None = None,
        only_if: Precondition | None = None,
    ) -> Summary:
        """Take a transaction back: at once if nothing has begun, else after its current step.

        Steps that were done are rolled back. The answer shows the status right now; `wait`
        tells how it ended, which may be success if the cancel came too late.
        """
        self._signals.cancel(tx_id, reason, by=by, only_if=only_if)
        return self.status(tx_id)

    # Batches for outside ledgers.

    def add_service(self, service_id: str, *, kind: str, url: str) -> Service:
        """Make a line of batches to a ledger, or give it another address.

        Its batches reach the ledger one at a time, in the order in which they were submitted.
        """
        return self._batches.add_service(service_id, kind=kind, url=url)

    def submit_batch(
        self,
        service_id: str,
        payload: bytes,
        *,
        batch_id: str | None = None,
        owner: str = "local",
        by: Actor | None = None,
    ) -> Stored:
        """Hand in a batch. When this returns it is committed and will not be lost.

        The same bytes again give the first answer again; other bytes under the same id raise
        BatchConflict. What is wrong with a batch is raised as ServiceUnknown or BatchInvalid.
        `by` is who hands it in, for the audit.
        """
        wanted = [(service_id, payload, batch_id)]
        answer = self._batches.submit_many(wanted, owner=owner, by=by)[0]
        if isinstance(answer, LedgerError):
            raise answer
        return answer

    def batch_before(
        self, service_id: str, payload: bytes, *, batch_id: str | None = None, owner: str
    ) -> Stored | None:
        """The first answer to a batch that was handed in before; None if it was not."""
        answer = self._batches.stored_before((service_id, payload, batch_id), owner=owner)
        if isinstance(answer, LedgerError):
            raise answer
        return answer

    def submit_batches(
        self, wanted: Sequence[tuple[str, bytes, str | None]], *, owner: str = "local"
    ) -> list[Stored | LedgerError]:
        """Hand in many at once, as (service, payload, batch id or None), in this order.

        One that is not acceptable does not hold up the others.
        """
        return self._batches.submit_many(wanted, owner=owner)

    def batch(self, service_id: str, batch_id: str, *, owner: str | None = None) -> LedgerBatch:
        """A batch as of now, or BatchUnknown; with an owner, only one of theirs."""
        return self._batches.find(service_id, batch_id, owner=owner)

    def batch_receipts(
        self, service_id: str, batch_id: str, owner: str | None = None
    ) -> list[dict[str, str | None]]:
        """What became of each transaction in a batch; with an owner only if it is that owner's."""
        return self._batches.receipts(service_id, batch_id, owner=owner)

    def batches(
        self,
        *,
        service_id: str | None = None,
        state: BatchState | None = None,
        owner: str | None = None,
        with_final: bool = False,
        after: tuple[str, int] | None = None,
        rows_max: int = 100,
    ) -> list[LedgerBatch]:
        """Batches that are not final, or all, by service and in order.

        `after` is the service and position of the last one of the page before.
        """
        return self._batches.list_batches(
            service_id=service_id,
            state=state,
            owner=owner,
            with_final=with_final,
            after=after,
            rows_max=rows_max,
        )

    def batch_history(
        self, service_id: str, batch_id: str
    ) -> tuple[list[BatchAttempt], list[Sighting]]:
        """Every submission of a batch, and every state in which it was seen."""
        return self._batches.history(service_id, batch_id)

    def wait_batch(self, service_id: str, batch_id: str, timeout_s: float = 60.0) -> LedgerBatch:
        """Wait until a batch is final, or raise WaitTimeout; it goes on regardless."""
        return self._batches.wait(service_id, batch_id, timeout_s)
