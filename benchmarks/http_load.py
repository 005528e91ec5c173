"""A client that costs little: HTTP/1.1 over plain connections, in a process of its own.

`python -m benchmarks.http_load` reads what to do as JSON from its standard input and prints what
it measured as JSON: the client must not take the time of the server under test, and a comfortable
HTTP library would.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bytes]:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return status, await reader.readexactly(length)


def request_bytes(method: str, path: str, key: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def post_many(order: dict[str, Any]) -> dict[str, Any]:
    """So many connections, each posting one after the other, until all is sent."""
    request = request_bytes("POST", order["path"], order["key"], order["body"].encode())
    left = order["requests"]
    took_s: list[float] = []

    async def one() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", order["port"])
        while left > 0:
            left -= 1
            began_s = time.perf_counter()
            status, answer = await exchange(reader, writer, request)
            took_s.append(time.perf_counter() - began_s)
            if status not in (200, 202):
                raise AssertionError(f"{status}: {answer[:200]!r}")
        writer.close()

    began_s = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(order["connections"])))
    return {"seconds": time.perf_counter() - began_s, "took_s": took_s}


async def poll_many(order: dict[str, Any]) -> dict[str, Any]:
    """A long poll for each transaction, all at once; when each was answered."""
    answered_s: dict[str, float] = {}
    asking = asyncio.Semaphore(200)

    async def one(tx_id: str) -> None:
        async with asking:
            reader, writer = await asyncio.open_connection("127.0.0.1", order["port"])
        request = request_bytes("GET", f"/v1/transactions/{tx_id}?wait=60", order["key"])
        # Again, as any client does, if the time was over before it ended.
        while tx_id not in answered_s:
            status, answer = await exchange(reader, writer, request)
            if status != 200:
                raise AssertionError(f"{status}: {answer[:200]!r}")
            if json.loads(answer)["status"] == "success":
                answered_s[tx_id] = time.time()
        writer.close()

    await asyncio.gather(*(one(tx_id) for tx_id in order["tx_ids"]))
    return {"answered_s": answered_s}


def main() -> None:
    order = json.loads(sys.stdin.read())
    work = {"post": post_many, "poll": poll_many}[order["what"]]
    sys.stdout.write(json.dumps(asyncio.run(work(order))))


if __name__ == "__main__":
    main()
