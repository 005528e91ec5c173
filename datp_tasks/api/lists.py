"""Lists in pages, all alike: `limit`, `nextCursor`, `hasMore`.

A limit above the largest is refused, not cut. A cursor is opaque to clients; it says where the
page ended, so what comes or goes meanwhile does not shift the next one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Query
from fastapi.responses import Response

from datp_tasks.api.problems import Problem
from datp_tasks.api.routing import json_response

T = TypeVar("T")

LIMIT_MAX = 200
LIMIT = 50
#: The longest one holds the name of a node and its group, or a search attribute of 200 characters,
#: each of which may take four bytes.
CURSOR_CHARS_MAX = 3_000

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="The most that a page may have.")]
Cursor = Annotated[
    str | None, Query(max_length=CURSOR_CHARS_MAX, description="The `nextCursor` of a page.")
]


def make_cursor(*parts: Any) -> str:
    text = json.dumps(parts, ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str | None, *kinds: type) -> list[Any] | None:
    """The parts of a cursor, which are of these kinds; None without one."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        parts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        fits = isinstance(parts, list) and [type(part) for part in parts] == list(kinds)
        if not fits or any(isinstance(part, str) and "\0" in part for part in parts):
            raise ValueError
        json.dumps(parts, ensure_ascii=False).encode()
        if any(isinstance(part, int) and abs(part) >= 2**63 for part in parts):
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise strange_cursor() from None
    return list(parts)


def read_moment_cursor(cursor: str | None) -> tuple[str, str] | None:
    """The time and the id of the last of the page before, of a list in the order of both."""
    parts = read_cursor(cursor, str, str)
    if parts is None:
        return None
    try:
        moment = datetime.fromisoformat(parts[0])
        if moment.utcoffset() is None:
            raise ValueError
        return moment.astimezone(UTC).isoformat(), parts[1]
    except (ValueError, OverflowError):
        raise strange_cursor() from None


def strange_cursor() -> Problem:
    detail = "The cursor is not one that was given as nextCursor of this list."
    mistake = {"pointer": "#/query/cursor", "detail": detail}
    return Problem(422, "request-invalid", detail, errors=[mistake])


def listed(
    name: str, items: Sequence[Any], *, cursor: str | None, limit: int, **more: Any
) -> Response:
    """A page as every list answers it."""
    about = {"nextCursor": cursor, "hasMore": cursor is not None, "limit": limit}
    return json_response({name: list(items), **about, **more})


def page_of_all(
    items: Sequence[T], key: Callable[[T], str], cursor: str | None, limit: int
) -> tuple[list[T], str | None]:
    """A page of a list that is read as a whole, in the order of its keys, which are unique."""
    after = read_cursor(cursor, str)
    rest = sorted((each for each in items if after is None or key(each) > after[0]), key=key)
    page = rest[:limit]
    return page, make_cursor(key(page[-1])) if len(rest) > limit else None


def page_of_more(
    found: Sequence[T], key: Callable[[T], tuple[Any, ...]], limit: int
) -> tuple[list[T], str | None]:
    """A page of what was asked for with one more than the limit."""
    page = list(found[:limit])
    return page, make_cursor(*key(page[-1])) if len(found) > limit else None
