"""Live pages: one stream of events per tab, one poller per view of this process.

A view is read and rendered once for all tabs that look at it; a tab gets the parts that have
changed, at most twice a second. Nothing in a part depends on who looks: payloads are masked, and
forms are outside of parts.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from datp_tasks.api.console.render import html
from datp_tasks.api.problems import problem_of
from datp_tasks.api.services import Services
from datp_tasks.api.shares import Shares

log = logging.getLogger("datp.console")

#: Tabs of the console that one process tells of changes.
STREAMS_MAX = 1_000
#: A tab that hears nothing for longer says that it is stale.
BEAT_S = 5.0
TROUBLE_S = 2.0
#: Told to the browser: how long to wait before it connects again.
RETRY_MS = 1_000
#: Between two looks at a view, also when tabs open one after the other.
LOOK_S_MIN = 0.5

Params = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """What a page shows and how it is read again."""

    name: str
    #: Read, in a thread.
    read: Callable[[Services, Params], Mapping[str, Any]]
    #: Id of an element -> template of its content.
    parts: Mapping[str, str]
    every_s: float = 1.0
    #: Cheap to read: as long as it is the same, the view is not read again.
    mark: Callable[[Services, Params], object] | None = None


@dataclass(slots=True, eq=False)
class _Tab:
    """What one tab has not been told yet."""

    bell: asyncio.Event = field(default_factory=asyncio.Event)
    changed: set[str] = field(default_factory=set)
    trouble: str = ""
    #: It was told nothing: what the others see may be older than the page that opened it.
    is_new: bool = True


class _Channel:
    """A view that some tabs look at."""

    def __init__(self, services: Services, view: LiveView, params: dict[str, str]) -> None:
        self._services = services
        self._view = view
        self._params = params
        self.tabs: set[_Tab] = set()
        self.shown: dict[str, str] = {}
        self._mark: object = object()
        self._asked = asyncio.Event()
        self._messages: dict[frozenset[str], bytes] = {}
        self.task = asyncio.create_task(self._poll())

    def join(self, tab: _Tab) -> None:
        """The tab is told what the next look finds, which begins soon."""
        self.tabs.add(tab)
        self._asked.set()

    def message(self, changed: set[str]) -> bytes:
        """The same bytes for all tabs that miss the same parts."""
        names = frozenset(changed)
        made = self._messages.get(names)
        if made is None:
            parts = {name: self.shown[name] for name in sorted(names) if name in self.shown}
            made = self._messages[names] = event("parts", json.dumps(parts))
        return made

    async def _poll(self) -> None:
        while True:
            begun_s = time.monotonic()
            pause_s = self._view.every_s
            self._asked.clear()
            new = {tab for tab in self.tabs if tab.is_new}
            try:
                self._tell(await self._services.threads.run(self._look), new)
            except Exception as error:
                pause_s = TROUBLE_S
                self._tell_trouble(str(problem_of(error).detail))
            await asyncio.sleep(max(0.1, LOOK_S_MIN - (time.monotonic() - begun_s)))
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, pause_s - (time.monotonic() - begun_s))):
                    await self._asked.wait()

    def _look(self) -> dict[str, str] | None:
        view = self._view
        if view.mark is not None:
            mark = view.mark(self._services, self._params)
            if mark == self._mark:
                return None
            self._mark = mark
        context = {**view.read(self._services, self._params), "base": self._params["base"]}
        return {name: html(template, context) for name, template in view.parts.items()}

    def _tell(self, parts: dict[str, str] | None, new: set[_Tab]) -> None:
        """`new`: tabs that were there before the look began, and were told nothing."""
        if parts is None:
            parts = self.shown
        changed = {name for name, text in parts.items() if self.shown.get(name) != text}
        if changed:
            self.shown, self._messages = parts, {}
        for tab in self.tabs:
            if tab in new:
                tab.is_new, tab.changed = False, set(parts)
            elif changed and not tab.is_new:
                tab.changed |= changed
            elif not tab.trouble:
                continue
            tab.trouble = ""
            tab.bell.set()

    def _tell_trouble(self, text: str) -> None:
        self._mark = object()
        for tab in self.tabs:
            if tab.trouble != text:
                tab.trouble = text
                tab.bell.set()


class Streams:
    def __init__(self, services: Services, streams_max: int) -> None:
        self._services = services
        self._places = Shares(streams_max, what="live tabs of the console")
        self._channels: dict[tuple[str, tuple[tuple[str, str], ...]], _Channel] = {}
        self._closing = asyncio.Event()

    def __len__(self) -> int:
        return self._places.used

    def end_all(self) -> None:
        """The process ends: the tabs connect to another one, or to the next."""
        self._closing.set()
        for channel in self._channels.values():
            for tab in channel.tabs:
                tab.bell.set()

    async def follow(
        self,
        view: LiveView,
        params: dict[str, str],
        owner: str,
        is_good: Callable[[], Awaitable[bool]],
    ) -> AsyncIterator[bytes]:
        """What a tab is told, until it goes, the process ends or `is_good` says no."""
        key = (view.name, tuple(sorted(params.items())))
        with self._places.held(owner):
            channel = self._channels.get(key)
            if channel is None:
                channel = self._channels[key] = _Channel(self._services, view, params)
            tab = _Tab()
            channel.join(tab)
            try:
                yield f"retry: {RETRY_MS}\n\n".encode()
                while not self._closing.is_set():
                    yield await self._next(channel, tab)
                    if not await is_good():
                        yield event("signed-out", "")
                        return
            finally:
                channel.tabs.discard(tab)
                if not channel.tabs:
                    self._channels.pop(key, None)
                    channel.task.cancel()

    async def _next(self, channel: _Channel, tab: _Tab) -> bytes:
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_S):
                await tab.bell.wait()
        tab.bell.clear()
        if tab.trouble:
            return event("trouble", json.dumps(tab.trouble))
        if not tab.changed:
            return event("beat", "")
        changed, tab.changed = tab.changed, set()
        return channel.message(changed)


def event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


class TabStream:
    """A response of server-sent events; the framework's own costs more for each of them."""

    background = None

    def __init__(self, source: AsyncIterator[bytes], headers: list[tuple[bytes, bytes]]) -> None:
        self._source = source
        self._headers = [
            *headers,
            (b"content-type", b"text/event-stream; charset=utf-8"),
            # nginx would keep events back until it has a buffer full of them.
            (b"x-accel-buffering", b"no"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_all(send))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The one that can fail is last.
            for task in (gone, sending):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _send_all(self, send: Send) -> None:
        try:
            # If there is no place for it, this raises: before the status is sent.
            first = await anext(self._source)
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await send({"type": "http.response.body", "body": first, "more_body": True})
            async for part in self._source:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self._source.aclose()  # type: ignore[attr-defined]


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
