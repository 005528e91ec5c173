"""Readers of the event feed in a process of their own: streams that are cut and come back.

`python -m benchmarks.feed_readers` reads what to do as JSON from its standard input and prints
what it saw. It parses the stream itself, because a comfortable HTTP library would take the time
that is measured.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

LINE_BYTES_MAX = 1_048_576


class Reader:
    """One that goes on at its last event whenever its connection was cut."""

    def __init__(self, order: dict[str, Any], number: int) -> None:
        self._order = order
        self._cursor: str = order["cursor"]
        self._rng = random.Random(number)
        self._seen: list[str] = []
        self._lags_ms: list[float] = []
        self._streams = 0

    async def run(self) -> dict[str, Any]:
        began_s = time.perf_counter()
        while len(self._seen) < self._order["expected"]:
            self._streams += 1
            await self._follow(self._rng.randint(1, 2 * self._order["cut_after"]))
        return {
            "seconds": time.perf_counter() - began_s,
            "events": len(self._seen),
            "different": len(set(self._seen)),
            "order": hashlib.sha256("\n".join(self._seen).encode()).hexdigest(),
            "lags_ms": self._lags_ms,
            "streams": self._streams,
        }

    async def _follow(self, events_max: int) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._order["port"], limit=LINE_BYTES_MAX
        )
        writer.write(
            f"GET /v1/events HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {self._order['key']}"
            f"\r\nAccept: text/event-stream\r\nLast-Event-ID: {self._cursor}\r\n\r\n".encode()
        )
        try:
            status = (await reader.readline()).split()[1]
            if status != b"200":
                raise AssertionError(f"{status!r}: {await reader.read(2_000)!r}")
            last = ""
            # A chunk ends where a line does, so lines of events are whole; others are not ours.
            while line := await reader.readline():
                if line.startswith(b"id: "):
                    last = line[4:].decode().strip()
                elif line.startswith(b"data: "):
                    self._note(json.loads(line[6:]), last)
                    events_max -= 1
                    if events_max <= 0 or len(self._seen) >= self._order["expected"]:
                        return
        finally:
            writer.close()

    def _note(self, event: dict[str, Any], cursor: str) -> None:
        lag_s = time.time() - datetime.fromisoformat(event["timestamp"]).timestamp()
        self._lags_ms.append(lag_s * 1_000)
        self._seen.append(event["id"])
        self._cursor = cursor


async def follow(order: dict[str, Any]) -> list[dict[str, Any]]:
    async with asyncio.timeout(order["give_up_s"]):
        readers = [Reader(order, number) for number in range(order["readers"])]
        return await asyncio.gather(*(each.run() for each in readers))


def start(order: dict[str, Any]) -> subprocess.Popen[str]:
    """In a process of its own; `seen` has what it saw."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.feed_readers"],
        cwd=Path(__file__).resolve().parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    return process


def seen(process: subprocess.Popen[str], give_up_s: float) -> list[dict[str, Any]]:
    try:
        out, err = process.communicate(timeout=give_up_s)
    finally:
        process.kill()
    if process.returncode:
        raise RuntimeError(err[-2_000:])
    found: list[dict[str, Any]] = json.loads(out)
    return found


def main() -> None:
    order = json.loads(sys.stdin.readline())
    sys.stdout.write(json.dumps(asyncio.run(follow(order))))


if __name__ == "__main__":
    main()
