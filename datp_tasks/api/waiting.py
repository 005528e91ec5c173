"""Long polls: those who wait for news of a transaction, in one registry per process.

News come by one subscription per process. A publish can be lost, so a waiter reads the record
after it has registered, and one query on a slow tick looks for all waiters together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from fastapi import Request

from datp_tasks.api.shares import Shares
from datp_tasks.api.threads import Threads
from datp_tasks.errors import DatabaseUnavailable
from datp_tasks.live.notifications import Notifications
from datp_tasks.record.record_types import Summary

log = logging.getLogger("datp.api")

#: Below the usual limits of proxies for a request without an answer.
LONG_POLL_S_MAX = 60.0
#: One query for all who wait, in case a publish was lost.
TICK_S = 2.0
#: In one process, at a few kilobytes each.
WAITERS_MAX = 10_000
SUBSCRIBE_S = 0.5
LOOK_AT_MAX = 1_000
OUTAGE_PAUSE_S = 0.5

#: Reads one transaction that the caller may see; None if there is none.
Look = Callable[[], Awaitable[Summary]]
#: Numbers of the last events of transactions.
Sequences = Callable[[Sequence[str]], dict[str, int]]


class ClientGone(Exception):
    """The client does not wait for the answer any more."""


@dataclass(slots=True)
class _Watched:
    """A transaction that a client waits for."""

    bells: set[asyncio.Event] = field(default_factory=set)
    #: The number of the last event that its waiters know.
    seen: int = -1


class Waiters:
    def __init__(
        self,
        notifications: Notifications,
        sequences: Sequences,
        threads: Threads,
    ) -> None:
        self._notifications = notifications
        self._sequences = sequences
        self._tick_s = TICK_S
        self._places = Shares(WAITERS_MAX, what="places for long polls")
        self._threads = threads
        self._watched: dict[str, _Watched] = {}
        self._closing = asyncio.Event()
        #: The subscription is there, or was: after a gap each waiter reads the record.
        self._heard = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return self._places.used

    def start(self) -> None:
        """In the event loop that the waiters live in."""
        self._loop = asyncio.get_running_loop()
        self._notifications.follow(self._on_news)
        self._ticker = asyncio.create_task(self._tick())

    def answer_all(self) -> None:
        """The process ends: each waiter gets the status as it is."""
        self._closing.set()
        self._wake(None)

    async def close(self) -> None:
        self.answer_all()
        if self._ticker is not None:
            self._ticker.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticker

    async def news(
        self, request: Request, tx_id: str, look: Look, *, wait_s: float, after: int | None
    ) -> Summary:
        """The transaction once it has ended or has an event after the given one, or as it is
        when the time is over. Without `after`, any event from now on is news."""
        give_up_s = time.monotonic() + wait_s
        gone = asyncio.create_task(_until_gone(request))
        try:
            owner = request.state.caller.owner
            with self._places.held(owner), self._registered(tx_id) as bell:
                await self._subscribed()
                return await self._wait(tx_id, look, bell, gone, give_up_s, after)
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone

    async def _wait(
        self,
        tx_id: str,
        look: Look,
        bell: asyncio.Event,
        gone: asyncio.Task[None],
        give_up_s: float,
        after: int | None,
    ) -> Summary:
        summary: Summary | None = None
        while True:
            bell.clear()
            try:
                summary = await look()
            except DatabaseUnavailable:
                # An outage is waited for like everything else, once it is known whose it is.
                if summary is None:
                    raise
                await asyncio.sleep(OUTAGE_PAUSE_S)
                bell.set()
            after = summary.sequence if after is None else after
            watched = self._watched[tx_id]
            if summary.sequence > watched.seen:
                # News to the others, too, if they looked before; the tick does not wake them now.
                watched.seen = summary.sequence
                for other in watched.bells - {bell}:
                    other.set()
            left_s = give_up_s - time.monotonic()
            if summary.is_final or summary.sequence > after or left_s <= 0:
                return summary
            if self._closing.is_set():
                return summary
            await _first_of(bell, gone, left_s)

    @contextmanager
    def _registered(self, tx_id: str) -> Iterator[asyncio.Event]:
        bell = asyncio.Event()
        watched = self._watched.setdefault(tx_id, _Watched())
        watched.bells.add(bell)
        try:
            yield bell
        finally:
            watched.bells.discard(bell)
            if not watched.bells:
                self._watched.pop(tx_id, None)

    async def _subscribed(self) -> None:
        """What is published from now on is heard; without Redis, the tick has to do."""
        if not self._heard.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), SUBSCRIBE_S)

    def _on_news(self, tx_id: str | None) -> None:
        """In the listening thread. Most news are of transactions that no client waits for here."""
        if (tx_id is None or tx_id in self._watched) and self._loop is not None:
            with suppress(RuntimeError):
                # The loop may have ended meanwhile.
                self._loop.call_soon_threadsafe(self._wake, tx_id)

    def _wake(self, tx_id: str | None) -> None:
        if tx_id is None:
            self._heard.set()
        found = list(self._watched.values()) if tx_id is None else [self._watched.get(tx_id)]
        for watched in found:
            if watched is not None:
                for bell in watched.bells:
                    bell.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            waiting = list(self._watched)
            for start in range(0, len(waiting), LOOK_AT_MAX):
                try:
                    await self._look_at(waiting[start : start + LOOK_AT_MAX])
                except Exception as error:
                    log.warning("long polls were not looked after: %s", error)

    async def _look_at(self, tx_ids: list[str]) -> None:
        found = await self._threads.run(self._sequences, tx_ids)
        for tx_id, sequence in found.items():
            watched = self._watched.get(tx_id)
            if watched is not None and sequence > watched.seen:
                self._wake(tx_id)


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _first_of(bell: asyncio.Event, gone: asyncio.Task[None], left_s: float) -> None:
    rung = asyncio.create_task(bell.wait())
    try:
        await asyncio.wait((rung, gone), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        rung.cancel()
    if gone.done() and not bell.is_set():
        raise ClientGone
