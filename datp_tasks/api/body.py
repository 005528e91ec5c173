"""Reading what clients send: never more than is allowed, not for ever, and strictly JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from datp_tasks.api.problems import Problem
from datp_tasks.api.shares import Shares
from datp_tasks.api.waiting import ClientGone
from datp_tasks.model.payload import NotJson, parse


class StrictRequest(Request):
    """A request whose body is read up to a limit, and whose JSON has no surprises."""

    def limit(self, bytes_max: int, read_s: float, bytes_held: Shares) -> StrictRequest:
        self._bytes_max = bytes_max
        self._read_s = read_s
        self._bytes_held = bytes_held
        self._taken = 0
        return self

    def release(self) -> None:
        """The request has its answer: its body counts no more."""
        if self._taken:
            self._bytes_held.give_back(self.state.caller.owner, self._taken)
            self._taken = 0

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._refuse_by_headers()
            try:
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
            except ClientDisconnect:
                raise ClientGone from None
        return self._body

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
        async for chunk in self.stream():
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
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem(415, "encoded", "The body must not be compressed.")

    def _declared(self) -> int:
        length = self.headers.get("content-length", "")
        # More digits than this are too large whatever they say.
        return int(length[:19]) if length.isdigit() else 0

    def _take(self, count: int) -> None:
        if count:
            self._bytes_held.take_or_refuse(self.state.caller.owner, count)
            self._taken += count

    def _is_json(self) -> bool:
        given = self.headers.get("content-type", "").partition(";")[0].strip().lower()
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
