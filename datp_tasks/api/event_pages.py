"""The route of the event feed: pages, long polls and streams, in our shape or as CloudEvents."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from datp_tasks.api import waiting
from datp_tasks.api.event_streams import EventStreams
from datp_tasks.api.models import FeedPageShown
from datp_tasks.api.problems import answer_of, forbidden, invalid
from datp_tasks.api.routing import VARY, by_key, grants, json_response, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.threads import acting_for
from datp_tasks.api.waiting import ClientGone
from datp_tasks.model.actor import Actor
from datp_tasks.model.payload import encode
from datp_tasks.model.rights import check_read, sees_payloads
from datp_tasks.model.sealed import MASK, masked
from datp_tasks.record.database import translate_outage
from datp_tasks.record.event_feed import (
    TEXT_CHARS_MAX,
    TYPES,
    FeedPage,
    TransactionEvent,
)
from datp_tasks.record.feed_places import BEGINNING, FeedCursor
from datp_tasks.record.vault import Vault
from datp_tasks.settings import Settings

#: Proxies close what is silent for a minute, some after half of that.
HEARTBEAT_S = 15.0
routes = router("/v1", "events")

PAGE_MAX = 1_000
STREAM = "text/event-stream"
BATCH = "application/cloudevents-batch+json"
#: Start with what happens from now on.
LATEST = "latest"
#: A client that takes nothing for so long does not read any more.
SEND_S = 30.0
#: The event that says why a stream ends early; its data is a problem document.
PROBLEM = "problem"
#: So many new events are written by the event loop itself; a thread costs as much as five.
INLINE_MAX = 20
#: How long a client waits before it comes back, as the stream tells it.
RETRY_MS = 1_000
#: Then a client comes back and shows its key again, which may have been revoked.
STREAM_S_MAX = 300.0
GONE: dict[int | str, dict[str, Any]] = {
    410: {"description": "What came after the cursor may be dropped by now."}
}


@routes.get("/events", operation_id="listEvents", response_model=FeedPageShown, responses=GONE)
@grants("read")
async def events(
    request: Request,
    *,
    after: Annotated[
        str | None,
        Query(max_length=200, description="A cursor, or `latest` for what happens from now on."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    wait: Annotated[float, Query(ge=0, le=86_400, description="Seconds to wait for news.")] = 0,
    type: Annotated[
        str | None, Query(max_length=200, description="Types of events, with commas between.")
    ] = None,
    owner: Annotated[str | None, Query(max_length=64, description="For operators.")] = None,
    format: Literal["cloudevents"] | None = None,
) -> Response:
    """What happened to all transactions, in the order of commits, without a gap.

    `Accept: text/event-stream` streams it; `Last-Event-ID` goes on where a stream ended.
    """
    services, caller = services_of(request), caller_of(request)
    check_read(caller.actor)
    if owner is not None and not caller.may_see(owner):
        raise forbidden("This key sees the events of its own owner only.")
    whose = owner if caller.is_operator else caller.owner
    accept = request.headers.get("accept", "")
    is_cloud = format == "cloudevents" or BATCH in accept
    shape = Shape(caller.actor, services.transactions.vault, _types(type), is_cloud=is_cloud)
    is_stream = STREAM in accept
    text = (request.headers.get("last-event-id") if is_stream else None) or after
    cursor = await _cursor(services, whose, LATEST if is_stream and text is None else text)
    if is_stream:
        services.waits.streams.places.take_or_refuse(caller.owner)
        return EventStream(request, shape, whose, cursor)
    page = await _page(request, services, whose, cursor, limit, wait)
    cursor_text = services.waits.streams.feed.names.text(page.next)

    def answer() -> Response:
        with translate_outage():
            shown = [shape.of(each) for each in page.events if shape.wants(each)]
        if BATCH in accept:
            told = {"Datp-Next-Cursor": cursor_text, "Datp-Has-More": str(page.is_full).lower()}
            return Response(encode(shown), headers={**told, **VARY}, media_type=BATCH)
        about = {"nextCursor": cursor_text, "hasMore": page.is_full, "limit": limit}
        return json_response({"events": shown, **about}, headers=VARY)

    # Opening what is sealed may ask PostgreSQL for its key.
    return await services.threads.run(answer)


async def _page(
    request: Request,
    services: Services,
    owner: str | None,
    cursor: FeedCursor,
    limit: int,
    wait_s: float,
) -> FeedPage:
    streams = services.waits.streams
    wait_s = min(wait_s, waiting.LONG_POLL_S_MAX)
    if wait_s <= 0:
        return await streams.read(owner, cursor.place, limit)
    gone = asyncio.ensure_future(_until_gone(request.receive))
    try:
        with streams.places.held(caller_of(request).owner):
            page = await streams.next_page(owner, cursor, limit, wait_s=wait_s, gone=gone)
            if gone.done():
                raise ClientGone
            return page
    finally:
        await _cancelled(gone)


async def _cursor(services: Services, owner: str | None, text: str | None) -> FeedCursor:
    """Where to begin; a cursor whose next events may be dropped is refused."""
    feed = services.waits.streams.feed
    head = await services.threads.run(feed.head)
    if text is None:
        return FeedCursor(BEGINNING, head.cursor.at)
    if text == LATEST:
        return head.cursor
    cursor = head.names.parse(text, head.cursor.at)
    rule_days = await services.threads.run(feed.rule_days, owner)
    cursor.check_kept(kept_days(services.settings, rule_days), head.cursor.at)
    # Here, because a stream that has begun cannot be refused any more.
    head.check_known(cursor.place)
    return cursor


def kept_days(settings: Settings, rule_days: int) -> int:
    """How long all events are kept, by settings and by the shortest rule; 0 is for ever."""
    days = (
        rule_days,
        settings.keep_state_changes_days,
        settings.keep_events_days,
        settings.keep_summaries_days,
    )
    return min((each for each in days if each), default=0)


def _types(text: str | None) -> frozenset[str]:
    wanted = frozenset(filter(None, (text or "").split(",")))
    unknown = sorted(wanted - set(TYPES))
    if unknown:
        known = ", ".join(TYPES)
        raise invalid([{"loc": ("query", "type"), "msg": f"{unknown[0]!r:.50} is none of {known}"}])
    return wanted


#: In events of transactions; `data` is what a payee is shown.
PAYLOADS = ("output", "progress", "metadata", "data")


class Shape:
    """How events look to the one who asks."""

    def __init__(
        self, actor: Actor, vault: Vault, types: frozenset[str], *, is_cloud: bool
    ) -> None:
        self._actor = actor
        self._vault = vault
        self._types = types
        self._is_cloud = is_cloud

    def view(self, event: TransactionEvent) -> str:
        """The same for all who are shown this event in the same way; empty if it is opened for
        one of them, and must not rest anywhere."""
        is_own = self._sees(event)
        if is_own and event.is_sealed:
            return ""
        return f"{'own' if is_own else 'masked'} {'cloud' if self._is_cloud else 'plain'}"

    def _sees(self, event: TransactionEvent) -> bool:
        return self._actor.owner == event.owner and sees_payloads(self._actor)

    def wants(self, event: TransactionEvent) -> bool:
        return not self._types or event.type in self._types

    def of(self, event: TransactionEvent) -> dict[str, Any]:
        data = self._data(event)
        if self._is_cloud:
            return {
                "specversion": "1.0",
                "id": event.id,
                "source": f"/datp/owners/{event.owner}",
                "type": event.type,
                "subject": event.tx_id,
                "time": time_text(event.at),
                "datacontenttype": "application/json",
                "data": data,
            }
        return {
            "id": event.id,
            "cursor": event.cursor,
            "type": event.type,
            "timestamp": time_text(event.at),
            "owner": event.owner,
            "data": data,
        }

    def _data(self, event: TransactionEvent) -> dict[str, Any]:
        """Payloads are the owner's. An operator asks for the transaction, which is audited."""
        payloads = [name for name in PAYLOADS if name in event.data]
        if not self._sees(event):
            return event.data | {name: event.data[name] and dict(MASK) for name in payloads}
        if self._vault.ring is None:
            return event.data | {name: masked(event.data[name]) for name in payloads}
        opened: dict[str, Any] = self._vault.opened_webhook(event.tx_id, {"data": event.data})[
            "data"
        ]
        return opened


class EventStream(Response):
    """Server-sent events: each with its cursor as id, a heartbeat in between, a bounded life."""

    def __init__(
        self, request: Request, shape: Shape, owner: str | None, cursor: FeedCursor
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", **VARY}, media_type=STREAM)
        self._request = request
        self._services = services_of(request)
        self._streams: EventStreams = self._services.waits.streams
        self._caller = caller_of(request)
        self._shape = shape
        self._owner = owner
        self._cursor = cursor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Its request is over: without this, what it reads would be in the name of none.
        with acting_for(self._caller.owner):
            await self._send_all(receive, send)

    async def _send_all(self, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            headers = [each for each in self.raw_headers if each[0] != b"content-length"]
            headers.append((b"x-accel-buffering", b"no"))
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            # With an id at once: one that is cut before its first event comes back to this place.
            await self._chunk(send, f"retry: {RETRY_MS}\nid: {self._id}\n\n")
            try:
                await self._pump(send, gone)
            except OSError:
                raise
            except Exception as error:
                # Too late for a status: the stream says why it ends, and ends in order.
                problem = answer_of(self._request, error)
                text = bytes(problem.body).decode()
                await self._chunk(send, f"event: {PROBLEM}\ndata: {text}\n\n")
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            # The client does not read (TimeoutError), or has gone; it comes back with its last id.
            return
        finally:
            self._streams.places.give_back(self._caller.owner)
            await _cancelled(gone)

    async def _pump(self, send: Send, gone: asyncio.Future[None]) -> None:
        beat_s = HEARTBEAT_S
        until_s = time.monotonic() + STREAM_S_MAX
        check_again_s = time.monotonic() + beat_s
        while not (gone.done() or self._streams.is_closing):
            wait_s = min(beat_s, until_s - time.monotonic())
            page = await self._streams.next_page(
                self._owner, self._cursor, PAGE_MAX, wait_s=max(wait_s, 0), gone=gone
            )
            if gone.done():
                return
            if time.monotonic() >= check_again_s:
                if not await self._is_still_admitted():
                    return
                check_again_s = time.monotonic() + beat_s
            self._cursor = page.next
            text = await self._written([each for each in page.events if self._shape.wants(each)])
            # Also without an event: a client that comes back need not read the others again.
            await self._chunk(send, f"{text}: beat\nid: {self._id}\n\n")
            if time.monotonic() >= until_s:
                return

    @property
    def _id(self) -> str:
        return self._streams.feed.names.text(self._cursor)

    async def _is_still_admitted(self) -> bool:
        """A key that was revoked is a problem; one with other rights now comes back with them."""
        return await by_key(self._services, self._request) == self._caller

    async def _written(self, events: list[TransactionEvent]) -> str:
        views = [self._shape.view(each) for each in events]
        new = [view for each, view in zip(events, views, strict=True) if view not in each.texts]
        if len(new) > INLINE_MAX or "" in views:
            # Opening what is sealed may ask PostgreSQL for its key.
            return await self._services.threads.run(self._write, events, views)
        return self._write(events, views)

    def _write(self, events: list[TransactionEvent], views: list[str]) -> str:
        return "".join(self._text(*each) for each in zip(events, views, strict=True))

    def _text(self, event: TransactionEvent, view: str) -> str:
        text = event.texts.get(view)
        if text is None:
            shown = encode(self._shape.of(event))
            text = f"id: {event.cursor}\nevent: {event.type}\ndata: {shown}\n\n"
            if view and len(text) <= TEXT_CHARS_MAX:
                event.texts[view] = text
        return text

    async def _chunk(self, send: Send, text: str) -> None:
        message = {"type": "http.response.body", "body": text.encode(), "more_body": True}
        await asyncio.wait_for(send(message), SEND_S)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
