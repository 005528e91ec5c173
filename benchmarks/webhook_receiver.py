"""A receiver that takes every webhook and does nothing: `python -m benchmarks.webhook_receiver`.

Of what is sent to a path that begins with /hang it takes note and never answers.
"""

from __future__ import annotations

import asyncio
import sys

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
            await reader.readexactly(length)
            if head.startswith(b"post /hang"):
                await reader.read()
                break
            writer.write(ANSWER)
            await writer.drain()
    except (EOFError, ConnectionError):
        pass
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(talk, "127.0.0.1", int(sys.argv[1]))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
