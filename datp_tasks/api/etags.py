"""ETags of transactions: whether one has changed since a client saw it.

Made of what moves when something happens to it: the number of its last event, its status, and the
fence, which grows with every claim, so that a transaction that is in doubt again is another one.
That its payloads were erased is a change, too: a client that is told 304 would keep its copy. That
a client has seen it (`notifiedAt`) is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import Request
from fastapi.responses import Response

from datp_tasks.api.problems import Problem
from datp_tasks.errors import TransactionError, TransactionHeld, TransactionMoved
from datp_tasks.record.record_types import Precondition, Summary

#: How long an action waits for the one that came first: a commit and a script.
HELD_LOOKS, HELD_LOOK_S = 20, 0.05


def etag_of(summary: Summary) -> str:
    erased = "-erased" if summary.erased_at is not None else ""
    return f'"{summary.sequence}-{summary.status}-{summary.fence:x}{erased}"'


def wanted_match(request: Request) -> Precondition | None:
    """What the client wants a transaction to be when an action takes hold of it; None: anything."""
    given = request.headers.get("if-match")
    return None if given is None else lambda summary: _names(given, etag_of(summary))


@asynccontextmanager
async def unmoved(request: Request, look: Callable[[], Awaitable[Summary]]) -> AsyncIterator[None]:
    """What refuses an action because the transaction has moved on is answered with its ETag."""
    try:
        yield
    except TransactionError as error:
        found = await look()
        check_match(request, found)
        if isinstance(error, TransactionHeld) and wanted_match(request) is not None:
            await _moved(request, look)
        if isinstance(error, TransactionMoved):
            # It moved, and moved back: the client may simply ask again.
            raise _precondition_failed(found) from None
        raise


async def _moved(request: Request, look: Callable[[], Awaitable[Summary]]) -> None:
    """Who holds it is about to move it: a client that asked for a match is told of that."""
    for _ in range(HELD_LOOKS):
        await asyncio.sleep(HELD_LOOK_S)
        check_match(request, await look())


def check_match(request: Request, summary: Summary) -> None:
    """Refuse an action whose client saw the transaction as it is no more."""
    matches = wanted_match(request)
    if matches is not None and not matches(summary):
        raise _precondition_failed(summary)


def _precondition_failed(summary: Summary) -> Problem:
    return Problem(
        412,
        "precondition-failed",
        f"The transaction is {summary.status}, its ETag {etag_of(summary)}.",
        headers={"ETag": etag_of(summary)},
    )


def unless_same(request: Request, summary: Summary, response: Response) -> Response:
    """With its ETag; 304 if the client has this one."""
    etag = etag_of(summary)
    given = request.headers.get("if-none-match")
    if given is not None and _names(given, etag):
        background = response.background
        response = Response(status_code=304)
        response.background = background
    response.headers["ETag"] = etag
    return response


def _names(given: str, etag: str) -> bool:
    """Whether a list of ETags has this one; `*` is any."""
    listed = (each.strip().removeprefix("W/") for each in given.split(","))
    return given.strip() == "*" or etag in listed
