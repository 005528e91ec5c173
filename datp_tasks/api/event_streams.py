"""Those who wait for events, in one registry per process: long polls and streams.

One query on a short tick reads what is new for all owners that are waited for. It goes into a
bounded list per owner, from which every stream of the owner is served; a stream that is further
behind reads pages of its own until it has caught up. So a hundred streams cost what one costs, and
no stream has a buffer that could grow.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from itertools import islice

from datp_tasks.api.shares import Shares
from datp_tasks.api.threads import Threads
from datp_tasks.record.database import translate_outage
from datp_tasks.record.event_feed import EventFeed, FeedPage, TransactionEvent
from datp_tasks.record.feed_places import FeedCursor, FeedPlace

log = logging.getLogger("datp.api")

#: How late an event may be told by a stream, beside its commit: one query for all owners.
TICK_MS = 100
#: Streams and long polls of the feed in one process; each costs some kilobytes.
STREAMS_MAX = 1_000
#: Read for one owner in a tick; a stream of an owner that has more catches up by itself.
TICK_ROWS_MAX = 500
#: Kept for the streams of an owner.
KEPT_MAX = 1_000
KEPT_BYTES_MAX = 16_000_000


@dataclass(slots=True)
class Tail:
    """The newest events of an owner: all after `start`, up to `head`."""

    events: deque[TransactionEvent] = field(default_factory=deque)
    start: FeedPlace | None = None
    head: FeedCursor | None = None
    bells: set[asyncio.Event] = field(default_factory=set)
    #: Of all events that are kept.
    weight: int = 0

    def begin(self, head: FeedCursor) -> None:
        """The first who reads the feed to its end says where the list begins."""
        if self.head is None:
            self.head, self.start = head, head.place

    def page(self, after: FeedCursor, rows_max: int) -> FeedPage | None:
        """The next events, or None if the list cannot tell which those are."""
        if self.head is None or self.start is None or after.place < self.start:
            return None
        if after.place > self.head.place:
            # Of one who has read further by itself, or of another server: PostgreSQL can tell.
            return None
        first = bisect_right(self.events, after.place, key=lambda each: each.place)
        found = list(islice(self.events, first, first + rows_max + 1))
        if len(found) > rows_max:
            last = found[rows_max - 1]
            return FeedPage(found[:rows_max], FeedCursor(last.place, last.at), is_full=True)
        return FeedPage(found, self.head, is_full=False)

    def add(self, page: FeedPage) -> None:
        self.events.extend(page.events)
        self.weight += sum(each.weight for each in page.events)
        self.head = page.next
        while len(self.events) > KEPT_MAX or self.weight > KEPT_BYTES_MAX:
            oldest = self.events.popleft()
            self.start = oldest.place
            self.weight -= oldest.weight
        if page.events:
            for bell in self.bells:
                bell.set()


class EventStreams:
    def __init__(self, feed: EventFeed, threads: Threads) -> None:
        self.feed = feed
        self._tick_s = TICK_MS / 1_000
        self._threads = threads
        self.places = Shares(STREAMS_MAX, what="places for event streams")
        #: By owner; "" is all owners.
        self._tails: dict[str, Tail] = {}
        self._closing = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        #: Counted for tests: what the streams cost.
        self.queries = 0

    def __len__(self) -> int:
        return self.places.used

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def end_all(self) -> None:
        """The process ends: streams end, and clients come back to another one."""
        self._closing.set()
        for tail in self._tails.values():
            for bell in tail.bells:
                bell.set()

    async def close(self) -> None:
        self.end_all()
        if self._ticker is not None:
            self._ticker.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticker

    async def read(self, owner: str | None, after: FeedPlace, rows_max: int) -> FeedPage:
        """One page, from PostgreSQL."""
        self.queries += 1

        def page() -> FeedPage:
            with translate_outage():
                return self.feed.page(owner, after, rows_max)

        return await self._threads.run(page)

    async def next_page(
        self,
        owner: str | None,
        after: FeedCursor,
        rows_max: int,
        *,
        wait_s: float,
        gone: asyncio.Future[None],
    ) -> FeedPage:
        """The next events, or an empty page when the time is over or the process ends."""
        give_up_s = time.monotonic() + wait_s
        with self._waiting(owner or "") as (tail, bell):
            while True:
                bell.clear()
                page = tail.page(after, rows_max)
                if page is None:
                    page = await self.read(owner, after.place, rows_max)
                    if not page.is_full:
                        tail.begin(page.next)
                left_s = give_up_s - time.monotonic()
                # A full page may show nothing: retention has dropped its events since.
                is_news = bool(page.events) or page.is_full
                if is_news or left_s <= 0 or self.is_closing or gone.done():
                    return page
                after = page.next
                await _first_of(bell, gone, left_s)

    @contextmanager
    def _waiting(self, owner: str) -> Iterator[tuple[Tail, asyncio.Event]]:
        bell = asyncio.Event()
        tail = self._tails.setdefault(owner, Tail())
        tail.bells.add(bell)
        if self._ticker is None or self._ticker.done():
            # For all owners: not in the name of the one that happened to wait first.
            self._ticker = asyncio.create_task(self._tick(), context=Context())
        try:
            yield tail, bell
        finally:
            tail.bells.discard(bell)

    async def _tick(self) -> None:
        """While there is anything to look for."""
        is_behind = False
        while self._tails and not self.is_closing:
            # What did not fit into one look is read at once.
            await asyncio.sleep(0 if is_behind else self._tick_s)
            # A stream that writes to its client at this moment is back before the next tick.
            quiet = [owner for owner, tail in self._tails.items() if not tail.bells]
            try:
                is_behind = await self._look()
            except Exception as error:
                is_behind = False
                log.warning("event streams were not looked after: %s", error)
                await asyncio.sleep(1)
            for owner in quiet:
                if owner in self._tails and not self._tails[owner].bells:
                    del self._tails[owner]

    async def _look(self) -> bool:
        """Read what is new, once for all; whether there is more at once."""
        pages: list[FeedPage] = []
        wanted = [
            (owner, tail.head.place)
            for owner, tail in self._tails.items()
            if owner and tail.head is not None
        ]
        if wanted:
            self.queries += 1
            found = await self._threads.run(self.feed.pages, wanted, TICK_ROWS_MAX)
            for owner, page in found.items():
                if owner in self._tails:
                    self._tails[owner].add(page)
                    pages.append(page)
        every = self._tails.get("")
        if every is not None and every.head is not None:
            page = await self.read(None, every.head.place, TICK_ROWS_MAX)
            every.add(page)
            pages.append(page)
        return any(page.is_full for page in pages)


async def _first_of(bell: asyncio.Event, gone: asyncio.Future[None], left_s: float) -> None:
    rung = asyncio.create_task(bell.wait())
    try:
        await asyncio.wait((rung, gone), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        rung.cancel()
