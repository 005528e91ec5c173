"""The client for programs with threads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from datp_tasks.http import bulk_flows, operations
from datp_tasks.http.connecting import TIMEOUT_S, authorization, base_url_of, reason_of
from datp_tasks.http.flows import Answered, CallRetry, Flow, NoReply, Outgoing, Pause, Reply
from datp_tasks.http.operations import ListFilters, SubmitOptions
from datp_tasks.http.replies import (
    BulkAnswer,
    BulkReceipt,
    FeedEvent,
    Json,
    Receipt,
    RemoteBulkTransfer,
    RemoteTransaction,
)

T = TypeVar("T")


class ApiClient:
    """Submit, read, wait, signal, over HTTP. Threads may share one; close it at the end.

    What the server calls retryable, and what broke on its way, is tried again: every POST carries
    an idempotency key, so a second try does nothing twice.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        retry: CallRetry | None = None,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._retry = retry or CallRetry()
        self._timeout_s = timeout_s
        self._http = httpx.Client(
            base_url=base_url_of(url), headers=authorization(key), transport=transport
        )

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
        self._http.close()

    def submit(
        self,
        pipeline: str,
        data: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Receipt:
        """Hand in a transaction. When this returns it is committed and will not be lost."""
        wanted = operations.submission(pipeline, data, options)
        return self._run(operations.submit(wanted, idempotency_key, self._retry))

    def submit_bulk(self, wanted: Sequence[Json]) -> list[BulkAnswer]:
        """Hand in many, each as the body of POST /v1/transactions; answers in their order."""
        return self._run(operations.submit_bulk(wanted, self._retry))

    def get(self, tx_id: str) -> RemoteTransaction:
        """The transaction as of now."""
        return self._run(operations.read(tx_id, self._retry))

    def wait(self, tx_id: str, timeout_s: float = 60.0) -> RemoteTransaction:
        """Wait for its end, by long polls, also while the server restarts; WaitTimeout leaves it
        running."""
        return self._run(operations.wait(tx_id, timeout_s, self._retry))

    def transactions(self, **filters: Unpack[ListFilters]) -> Iterator[RemoteTransaction]:
        """The newest first, page by page, as long as one goes on."""
        cursor: str | None = None
        while True:
            found = self._run(operations.page(filters, cursor, self._retry))
            yield from found.transactions
            cursor = found.next_cursor
            if cursor is None:
                return

    def events(
        self, *, after: str | None = None, types: Sequence[str] = (), follow: bool = True
    ) -> Iterator[FeedEvent]:
        """What happens to the transactions of this key's owner, in order and without a gap.

        It goes on for ever, by long polls; without `follow` it ends with the last event there is.
        A server that stays unavailable for longer than the retries take is an ApiError.
        Keep the `cursor` of what you have handled and give it as `after` when you come back;
        "latest" begins now, None with the oldest event that is kept.
        """
        wait_s = operations.POLL_S if follow else 0.0
        while True:
            found = self._run(operations.events(after, types, wait_s, self._retry))
            yield from found.events
            after = found.next_cursor
            if not (follow or found.has_more):
                return

    def cancel(self, tx_id: str, reason: str | None = None) -> RemoteTransaction:
        """Take it back: at once if nothing has begun, else after its step, with a rollback."""
        return self._run(operations.cancel(tx_id, reason, self._retry))

    def submit_bulk_transfer(
        self,
        pipeline: str,
        transfers: Sequence[Json],
        data: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> BulkReceipt:
        """Hand in transfers with one deadline and one report, each as the body of
        POST /v1/transactions. One commit accepts the bulk and its transfers."""
        bulk = operations.submission(pipeline, data or {}, options)
        return self._run(bulk_flows.submit(bulk, transfers, idempotency_key, self._retry))

    def get_bulk_transfer(self, bulk_id: str) -> RemoteBulkTransfer:
        """The state of a bulk, and what became of each transfer so far."""
        return self._run(bulk_flows.read(bulk_id, self._retry))

    def wait_bulk_transfer(self, bulk_id: str, timeout_s: float = 60.0) -> RemoteBulkTransfer:
        """Wait until each of its transfers has ended; WaitTimeout leaves it running."""
        return self._run(bulk_flows.wait(bulk_id, timeout_s, self._retry))

    def cancel_bulk_transfer(
        self, bulk_id: str, reason: str | None = None, *, break_glass: bool = False
    ) -> RemoteBulkTransfer:
        """Take back each transfer that still can be; `cancel` of each says what became of that.

        An operator who needs the approval of another person gets ApprovalNeeded; with
        `break_glass` it acts alone, and an alert stays.
        """
        return self._run(bulk_flows.cancel(bulk_id, reason, break_glass, self._retry))

    def wake(self, tx_id: str) -> bool:
        """End a sleep early; False if it does not sleep."""
        return self._run(operations.wake(tx_id, self._retry))

    def set_switch(self, tx_id: str, name: str, value: bool | int | float | str | None) -> bool:
        """Set a switch (None removes it); True if the transaction woke up."""
        return self._run(operations.set_switch(tx_id, name, value, self._retry))

    def request(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None
    ) -> Json:
        """Any other route, as `client.request("GET", "/v1/alerts")`."""
        return self._run(operations.request(method, path, params, body, self._retry))

    def _run(self, flow: Flow[T]) -> T:
        reply: Reply = None
        while True:
            try:
                wanted = flow.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(wanted, Pause):
                time.sleep(wanted.seconds)
                reply = None
            else:
                reply = self._sent(wanted)

    def _sent(self, wanted: Outgoing) -> Reply:
        try:
            response = self._http.request(
                wanted.method,
                wanted.path,
                params=dict(wanted.params),
                json=wanted.body,
                headers=dict(wanted.headers),
                timeout=self._timeout_s + wanted.extra_s,
            )
        except httpx.RequestError as error:
            return NoReply(reason_of(error))
        return Answered(response.status_code, response.headers, response.content)
