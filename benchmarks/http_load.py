"""A client that costs little: HTTP/1.1 over plain connections, in a process of its own.

`python -m benchmarks.http_load` reads what to do as JSON from its standard input and prints what
it measured as JSON: the client must not take the time of the server under test, and a comfortable
HTTP library would.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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


class Paced:
    """An open loop: requests leave when their time comes, whether or not others were answered.

    Times count from when a request was to leave, so that a generator that is late does not flatter
    the server. Some are followed by a long poll until they are final.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._port, self._key = order["port"], order["key"]
        self._path, self._bodies = order["path"], order["bodies"]
        self._per_s, self._poll_every = order["per_s"], order["poll_every"]
        self._poll_s = order["poll_s"]
        self._idle: list[Connection] = []
        self._tx_ids: list[str] = []
        self._accepted_s: list[float] = []
        self._final_s: list[float] = []
        self._late_s = 0.0

    async def run(self) -> dict[str, Any]:
        tasks = []
        began_s = time.perf_counter()
        for number, body in enumerate(self._bodies):
            leaves_s = began_s + number / self._per_s
            await asyncio.sleep(leaves_s - time.perf_counter())
            self._late_s = max(self._late_s, time.perf_counter() - leaves_s)
            follow = number % self._poll_every == self._poll_every - 1
            tasks.append(asyncio.create_task(self._one(body.encode(), leaves_s, follow)))
        await asyncio.gather(*tasks)
        for _, writer in self._idle:
            writer.close()
            await writer.wait_closed()
        return {
            "tx_ids": self._tx_ids,
            "accepted_s": self._accepted_s,
            "final_s": self._final_s,
            "late_s": self._late_s,
        }

    async def _one(self, body: bytes, leaves_s: float, follow: bool) -> None:
        request = request_bytes("POST", self._path, self._key, body)
        status, answer = await self._exchange(request)
        if status not in (200, 202):
            raise AssertionError(f"{status}: {answer[:200]!r}")
        self._accepted_s.append(time.perf_counter() - leaves_s)
        tx_id = json.loads(answer)["txId"]
        self._tx_ids.append(tx_id)
        if follow and await self._is_final(tx_id):
            self._final_s.append(time.perf_counter() - leaves_s)

    async def _is_final(self, tx_id: str) -> bool:
        path = f"/v1/transactions/{tx_id}?wait={self._poll_s}"
        status, answer = await self._exchange(request_bytes("GET", path, self._key))
        return status == 200 and json.loads(answer)["status"] == "success"

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        if self._idle:
            connection = self._idle.pop()
        else:
            connection = await asyncio.open_connection("127.0.0.1", self._port)
        answer = await exchange(*connection, request)
        self._idle.append(connection)
        return answer


async def post_paced(order: dict[str, Any]) -> dict[str, Any]:
    return await Paced(order).run()


def load(order: dict[str, Any], give_up_s: float) -> dict[str, Any]:
    """Do it in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.http_load"],
        input=json.dumps(order),
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        timeout=give_up_s,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2_000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    order = json.loads(sys.stdin.read())
    work = {"post": post_many, "poll": poll_many, "paced": post_paced}[order["what"]]
    sys.stdout.write(json.dumps(asyncio.run(work(order))))


if __name__ == "__main__":
    main()
