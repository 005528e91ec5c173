"""Sending: an event loop in a thread of its own, so that no slow receiver holds up a worker.

The loop picks what is due, makes the attempts side by side and writes down what became of those
that are done, all that are done at once. When nothing is left it ends, and a run starts another.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Protocol, TypeVar

from datp_tasks.failpoints import reach
from datp_tasks.model.notes import error_note, new_error_id
from datp_tasks.outbound.messages import Exchange, HttpRequest, NoResponse
from datp_tasks.record.webhook_queue import ClaimedDelivery, DeliveryOutcome, Receiver
from datp_tasks.settings import Settings
from datp_tasks.webhooks.picker import PACE_S, Busy, Capacity, Picked
from datp_tasks.webhooks.verdict import outcome_of

log = logging.getLogger("datp.webhooks")

STOP_S = 5.0
CLOSE_S = 0.01
#: With fewer places free than this part of them, looks have pauses between them.
ROOM = 0.25
#: The newest measurement of a target weighs so much.
PACE_WEIGHT = 0.3
PACES_MAX = 10_000

T = TypeVar("T")


@dataclass(slots=True)
class SendResult:
    """What one run has seen come to its end."""

    attempts: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0

    def count(self, outcomes: Sequence[DeliveryOutcome]) -> None:
        self.attempts += len(outcomes)
        self.delivered += sum(each.state == "delivered" for each in outcomes)
        self.failed += sum(each.state == "pending" for each in outcomes)
        self.dead += sum(each.state == "dead" for each in outcomes)


class _Turns:
    """Remembers that some wait for their turn, until none was found for a while."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._turn_s: float | None = None
        self._since_s = 0.0

    def wait_s(self, picked: Picked) -> float | None:
        """How long until one of them may be due; None if none is, or beat will find it."""
        now_s = time.monotonic()
        if picked.turn_s is not None:
            self._turn_s, self._since_s = picked.turn_s, now_s
        elif now_s - self._since_s > max(self._patience_s, self._turn_s or 0.0):
            self._turn_s = None
        return self._turn_s


class Clients(Protocol):
    """Sends requests, each on behalf of an owner."""

    async def send(self, owner: str, request: HttpRequest, within_s: float) -> Exchange: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SenderPorts:
    """What the loop needs of the world. The first two block, so they run in threads."""

    #: From what is under way to attempts that may be made beside it.
    pick: Callable[[Capacity], Picked]
    settle: Callable[[Sequence[DeliveryOutcome]], None]
    #: The headers of an attempt.
    headers: Callable[[ClaimedDelivery], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is sent at a time, and how long the pauses are; a node group may say its own."""

    workers: int
    run_s: float
    pause_ms: int
    pause_busy_ms: int
    pause_idle_ms: int

    @classmethod
    def of(cls, settings: Settings) -> Pace:
        return cls(
            workers=settings.webhook_workers,
            run_s=settings.webhook_run_s,
            pause_ms=settings.webhook_pause_ms,
            # The longer pause: with all places taken there is no place for what would be found.
            pause_busy_ms=max(settings.webhook_pause_busy_ms, settings.webhook_pause_ms),
            pause_idle_ms=settings.webhook_pause_idle_ms,
        )

    def wait_ms(self, *, is_full: bool, is_more: bool) -> int:
        """Until the next look: the longest while there is nothing, a longer one while no place is
        free than while there are places and more to send."""
        if is_full:
            return self.pause_busy_ms
        return self.pause_ms if is_more else self.pause_idle_ms


class Sender:
    def __init__(
        self, settings: Settings, office: SenderPorts, clients: Clients, rng: random.Random
    ) -> None:
        self._settings = settings
        self._pace = Pace.of(settings)
        self._office = office
        self._clients = clients
        self._rng = rng
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pump: futures.Future[SendResult] | None = None
        self._news = asyncio.Event()
        self._closing = False
        self._threads = futures.ThreadPoolExecutor(2, thread_name_prefix="datp-webhooks")
        self._under_way: dict[asyncio.Task[DeliveryOutcome], tuple[ClaimedDelivery, float]] = {}
        self._paces: dict[Receiver, float] = {}
        self._looked_s = float("-inf")

    def run(self, pace: Pace) -> SendResult | None:
        """See to what is due, for `pace.run_s`; what is under way then goes on by itself.

        None if it does go on.
        """
        with self._lock:
            self._pace = pace
            if self._closing:
                return SendResult()
            if self._pump is None or self._pump.done():
                picked = self._office.pick(Capacity(pace.workers))
                if not picked.claimed and picked.turn_s is None:
                    return SendResult()
                work = self._work(picked)
                self._pump = asyncio.run_coroutine_threadsafe(work, self._started())
            else:
                self._started().call_soon_threadsafe(self._news.set)
            pump = self._pump
        futures.wait([pump], timeout=pace.run_s)
        return pump.result() if pump.done() else None

    def close(self) -> None:
        """What is under way gets a moment to end; what does not is tried again by others."""
        with self._lock:
            self._closing = True
            pump, loop, thread = self._pump, self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(self._news.set)
            if pump is not None:
                futures.wait([pump], timeout=STOP_S)
            futures.wait([asyncio.run_coroutine_threadsafe(self._end(), loop)], timeout=STOP_S)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(STOP_S)
            loop.close()
        self._threads.shutdown(wait=False)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="datp-webhooks", daemon=True
            )
            self._thread.start()
        return self._loop

    # On the event loop.

    async def _work(self, picked: Picked) -> SendResult:
        sent = SendResult()
        turns = _Turns(self._settings.webhook_sender_period_s)
        outcomes: list[DeliveryOutcome] = []
        settling: asyncio.Task[None] | None = None
        try:
            while True:
                self._start(picked.claimed)
                await self._pause(picked, turns.wait_s(picked), settling)
                outcomes += self._ended()
                if settling is not None and settling.done():
                    settling.result()
                    settling = None
                if outcomes and settling is None:
                    # What ends while this is written down goes together next.
                    settling = asyncio.ensure_future(self._settle(outcomes, sent))
                    outcomes = []
                picked = await self._look()
                is_waited_for = turns.wait_s(picked) is not None
                if not (picked.is_more or self._under_way or settling or is_waited_for):
                    break
        except Exception:
            # PostgreSQL or Redis is unavailable. What was claimed is due again after a while.
            log.exception("webhooks are not sent now; the next run tries again")
        finally:
            # Ended by a crash or by the end of the process: no caller waits for the rest.
            for task in (*self._under_way, *filter(None, [settling])):
                task.cancel()
            self._under_way.clear()
        return sent

    async def _look(self) -> Picked:
        workers, under_way = self._pace.workers, len(self._under_way)
        if self._closing:
            return Picked([])
        free = workers - under_way
        now_s = time.monotonic()
        is_soon = now_s - self._looked_s < self._pace.pause_busy_ms / 1_000
        # Not after every attempt that ends; but what is free may be for an owner that waits.
        if under_way and (free <= 0 or (free < workers * ROOM and is_soon)):
            return Picked([], is_more=True)
        self._looked_s = now_s
        return await self._in_thread(self._office.pick, Capacity(free, self._busy()))

    async def _settle(self, outcomes: list[DeliveryOutcome], sent: SendResult) -> None:
        await self._in_thread(self._office.settle, outcomes)
        sent.count(outcomes)

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._clients.close()
        # The loop closes connections in one of its next rounds.
        await asyncio.sleep(CLOSE_S)

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    async def _pause(
        self, picked: Picked, turn_s: float | None, settling: asyncio.Task[None] | None
    ) -> None:
        """Until something has ended or there is news, or for as long as the pace says."""
        is_full = len(self._under_way) >= self._pace.workers
        ms: float = self._pace.wait_ms(is_full=is_full, is_more=picked.is_more)
        if turn_s is not None:
            ms = min(ms, turn_s * 1_000)
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait(
                [*self._under_way, *filter(None, [settling]), news],
                timeout=ms / 1_000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            news.cancel()
            self._news.clear()

    def _start(self, picked: Sequence[ClaimedDelivery]) -> None:
        for claimed in picked:
            task = asyncio.ensure_future(self._attempt(claimed))
            self._under_way[task] = (claimed, time.monotonic())

    def _ended(self) -> list[DeliveryOutcome]:
        outcomes = []
        for task in [task for task in self._under_way if task.done()]:
            del self._under_way[task]
            outcomes.append(task.result())
        return outcomes

    def _busy(self) -> dict[Receiver, Busy]:
        """One that has been under way for longer than usual shows how long it takes now."""
        busy: dict[Receiver, Busy] = {}
        now_s = time.monotonic()
        for claimed, since_s in self._under_way.values():
            before = busy.get(claimed.receiver)
            pace_s = max(
                before.pace_s if before else 0.0,
                self._paces.get(claimed.receiver, PACE_S),
                now_s - since_s,
            )
            busy[claimed.receiver] = Busy(before.count + 1 if before else 1, pace_s)
        return busy

    async def _attempt(self, claimed: ClaimedDelivery) -> DeliveryOutcome:
        began_s = time.monotonic()
        try:
            request = HttpRequest(
                method="POST",
                url=claimed.url,
                headers=self._office.headers(claimed),
                content=claimed.payload.encode(),
            )
            reach("webhooks.before_post")
            sent = await self._clients.send(
                claimed.owner, request, self._settings.webhook_timeout_s
            )
            reach("webhooks.after_post")
        except Exception as error:
            error_id = new_error_id()
            log.exception("%s could not be sent, error %s", claimed.id, error_id)
            sent = NoResponse(f"it could not be sent: {error_note(type(error).__name__, error_id)}")
        took_s = time.monotonic() - began_s
        self._measured(claimed.receiver, took_s)
        took_ms = int(took_s * 1_000)
        return outcome_of(claimed, sent, self._settings, self._rng, took_ms=took_ms)

    def _measured(self, receiver: Receiver, took_s: float) -> None:
        if len(self._paces) >= PACES_MAX:
            self._paces.clear()
        before_s = self._paces.get(receiver, took_s)
        self._paces[receiver] = before_s + PACE_WEIGHT * (took_s - before_s)
