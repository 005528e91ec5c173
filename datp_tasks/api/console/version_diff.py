"""The page that shows what differs between two versions, of a pipeline or of a shared mapping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.payload_diff import DiffLine
from datp_tasks.api.console.visit import Visit

#: Lines before the changes begin: the names of the two.
DIFF_HEAD = 2


def compared(visit: Visit) -> tuple[str, str]:
    """The two versions that the query names; both are empty until both are chosen."""
    given = visit.request.query_params
    one, other = given.get("from", ""), given.get("to", "")
    return (one, other) if one and other else ("", "")


def diff_page(
    visit: Visit,
    *,
    home: str,
    versions: Sequence[Any],
    unified: Iterable[str] = (),
    commands: Sequence[str] = (),
) -> Response:
    """`unified` are the lines of a unified diff; `commands` show the same in a terminal."""
    name, given = visit.part("name"), visit.request.query_params
    return visit.page(
        "version_diff.html",
        title=f"What differs in {name}",
        name=name,
        home=home,
        versions=versions,
        one=given.get("from", ""),
        other=given.get("to", ""),
        lines=[DiffLine(line[:1], line[1:]) for line in list(unified)[DIFF_HEAD:]],
        commands=commands,
    )
