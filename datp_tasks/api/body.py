"""Reading what clients send: never more than is allowed, not for ever, and strictly JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request

from datp_tasks.api.problems import Problem
from datp_tasks.api.shares import Shares
from datp_tasks.api.waiting import ClientGone
from datp_tasks.model.payload import NotJson, parse


def header_of(request: Request, name: bytes) -> str | None:
    """Of a request that is read strictly, without looking through all its headers."""
    if isinstance(request, StrictRequest):
        return request.header(name)
    return request.headers.get(name.decode())


class StrictRequest(Request):
    """A request whose body is read up to a limit, and whose JSON has no surprises."""

    def limit(self, bytes_max: int, read_s: float, bytes_held: Shares) -> StrictRequest:
        self._bytes_max = bytes_max
        self._read_s = read_s
        self._bytes_held = bytes_held
        self._taken = 0
        # The first of each name counts, as in `headers`, which looks through all for each.
        self._head: dict[bytes, bytes] = dict(reversed(self.scope["headers"]))
        return self

    def header(self, name: bytes) -> str | None:
        """By its name in lower case."""
        found = self._head.get(name)
        return None if found is None else found.decode("latin-1")

    def release(self) -> None:
        """The request has its answer: its body counts no more."""
        if self._taken:
            self._bytes_held.give_back(self.state.caller.owner, self._taken)
            self._taken = 0

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._refuse_by_headers()
            try:
                if self._has_arrived():
                    self._body = await self._read()
                else:
                    async with asyncio.timeout(self._read_s):
                        self._body = await self._read()
            except TimeoutError:
                # Closed, because what still comes would be taken for the next request.
                raise Problem(
                    408,
                    "too-slow",
                    f"The body did not arrive within {self._read_s:g} s.",
                    headers={"Connection": "close"},
                ) from None
        return self._body

    def _has_arrived(self) -> bool:
        """Whether reading it waits for nothing, as far as uvicorn says so; then no timer is set."""
        return not getattr(getattr(self.receive, "__self__", None), "more_body", True)

    async def json(self) -> Any:
        text = await self.body()
        try:
            # What was accepted before is looked up before a number is refused.
            return parse(text, what="The body", bytes_max=self._bytes_max, keep_inexact=True)
        except NotJson as error:
            raise Problem(400, "not-json", f"{error}.") from None

    async def _read(self) -> bytes:
        chunks: list[bytes] = []
        size = 0
        # Memory is promised before it is used, as far as the client says how much it needs.
        self._take(self._declared())
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(chunk)
            if size > self._bytes_max:
                raise self._too_large()
            if size > self._taken:
                self._take(size - self._taken)
            chunks.append(chunk)
        body = b"".join(chunks)
        if body and not self._is_json():
            raise Problem(
                415, "not-json", "The body must be JSON, with Content-Type: application/json."
            )
        return body

    def _refuse_by_headers(self) -> None:
        if self._declared() > self._bytes_max:
            raise self._too_large()
        if (self.header(b"content-encoding") or "identity").lower() != "identity":
            raise Problem(415, "encoded", "The body must not be compressed.")

    def _declared(self) -> int:
        length = self.header(b"content-length") or ""
        # More digits than this are too large whatever they say.
        return int(length[:19]) if length.isdigit() else 0

    def _take(self, count: int) -> None:
        if count:
            self._bytes_held.take_or_refuse(self.state.caller.owner, count)
            self._taken += count

    def _is_json(self) -> bool:
        given = (self.header(b"content-type") or "").partition(";")[0].strip().lower()
        return given == "application/json" or (
            given.startswith("application/") and given.endswith("+json")
        )

    def _too_large(self) -> Problem:
        # Closed, because what the client still sends would be taken for its next request.
        return Problem(
            413,
            "too-large",
            f"The body is larger than the {self._bytes_max} bytes that are allowed here.",
            headers={"Connection": "close"},
        )
