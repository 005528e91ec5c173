"""The client for programs with an event loop; each method is the one of `ApiClient`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
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


class AsyncApiClient:
    """Submit, read, wait, signal, over HTTP, within an event loop. Close it at the end."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        retry: CallRetry | None = None,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._retry = retry or CallRetry()
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(
            base_url=base_url_of(url), headers=authorization(key), transport=transport
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def submit(
        self,
        pipeline: str,
        data: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Receipt:
        wanted = operations.submission(pipeline, data, options)
        return await self._run(operations.submit(wanted, idempotency_key, self._retry))

    async def submit_bulk(self, wanted: Sequence[Json]) -> list[BulkAnswer]:
        return await self._run(operations.submit_bulk(wanted, self._retry))

    async def get(self, tx_id: str) -> RemoteTransaction:
        return await self._run(operations.read(tx_id, self._retry))

    async def wait(self, tx_id: str, timeout_s: float = 60.0) -> RemoteTransaction:
        return await self._run(operations.wait(tx_id, timeout_s, self._retry))

    async def transactions(
        self, **filters: Unpack[ListFilters]
    ) -> AsyncIterator[RemoteTransaction]:
        cursor: str | None = None
        while True:
            found = await self._run(operations.page(filters, cursor, self._retry))
            for each in found.transactions:
                yield each
            cursor = found.next_cursor
            if cursor is None:
                return

    async def events(
        self, *, after: str | None = None, types: Sequence[str] = (), follow: bool = True
    ) -> AsyncIterator[FeedEvent]:
        wait_s = operations.POLL_S if follow else 0.0
        while True:
            found = await self._run(operations.events(after, types, wait_s, self._retry))
            for each in found.events:
                yield each
            after = found.next_cursor
            if not (follow or found.has_more):
                return

    async def cancel(self, tx_id: str, reason: str | None = None) -> RemoteTransaction:
        return await self._run(operations.cancel(tx_id, reason, self._retry))

    async def submit_bulk_transfer(
        self,
        pipeline: str,
        transfers: Sequence[Json],
        data: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> BulkReceipt:
        bulk = operations.submission(pipeline, data or {}, options)
        return await self._run(bulk_flows.submit(bulk, transfers, idempotency_key, self._retry))

    async def get_bulk_transfer(self, bulk_id: str) -> RemoteBulkTransfer:
        return await self._run(bulk_flows.read(bulk_id, self._retry))

    async def wait_bulk_transfer(self, bulk_id: str, timeout_s: float = 60.0) -> RemoteBulkTransfer:
        return await self._run(bulk_flows.wait(bulk_id, timeout_s, self._retry))

    async def cancel_bulk_transfer(
        self, bulk_id: str, reason: str | None = None, *, break_glass: bool = False
    ) -> RemoteBulkTransfer:
        return await self._run(bulk_flows.cancel(bulk_id, reason, break_glass, self._retry))

    async def wake(self, tx_id: str) -> bool:
        return await self._run(operations.wake(tx_id, self._retry))

    async def set_switch(
        self, tx_id: str, name: str, value: bool | int | float | str | None
    ) -> bool:
        return await self._run(operations.set_switch(tx_id, name, value, self._retry))

    async def request(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None
    ) -> Json:
        return await self._run(operations.request(method, path, params, body, self._retry))

    async def _run(self, flow: Flow[T]) -> T:
        reply: Reply = None
        while True:
            try:
                wanted = flow.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(wanted, Pause):
                await asyncio.sleep(wanted.seconds)
                reply = None
            else:
                reply = await self._sent(wanted)

    async def _sent(self, wanted: Outgoing) -> Reply:
        try:
            response = await self._http.request(
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
