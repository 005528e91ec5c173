"""Lines that a step logs, as they are kept: a part of the delta that follows them.

So they are journalled, sealed, kept and erased with everything else that the step left, and cost no
call of their own. A line is a list, because there may be many:

    [ms, level, path, step type, attempt, text]  and, where the step gave some, its fields
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from datp_tasks.model.journal import Entry
from datp_tasks.model.notes import storable
from datp_tasks.model.payload import encode
from datp_tasks.model.sealed import data_key_of
from datp_tasks.model.state import Delta

#: A sentence with some values; what is longer is data, and belongs into the output of the step.
LINE_CHARS_MAX = 2_000
FIELDS_CHARS_MAX = 2_000
#: Of all lines of a transaction: a step that sleeps and looks again for a year must not fill SQL.
TRANSACTION_CHARS_MAX = 100_000
#: What a line without a text takes.
LINE_CHARS = 50

CUT = f"no further lines are kept: the limit is {TRANSACTION_CHARS_MAX} characters"

Kept = list[Any]


@dataclass(frozen=True, slots=True)
class LogLine:
    #: Where it stands in the journal: the version of its entry, and its place there.
    version: int
    place: int
    level: str
    text: str
    at: datetime | None = None
    path: str = ""
    step_type: str = ""
    attempt: int = 1
    fields: Mapping[str, Any] | None = None
    #: The lines of this entry rest sealed; `text` says so.
    is_sealed: bool = False

    @property
    def cursor(self) -> str:
        return f"{self.version}.{self.place}"


def kept_text(text: str) -> str:
    return storable(text if len(text) <= LINE_CHARS_MAX else text[: LINE_CHARS_MAX - 1] + "…")


def kept_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that JSON can hold, and not too many; a line must not break the step that logs it."""
    try:
        text = json.dumps(fields, default=str, ensure_ascii=False, skipkeys=True)
        if len(text) > FIELDS_CHARS_MAX:
            return {"cut": storable(text[:FIELDS_CHARS_MAX])}
        # What JSON does not know, such as NaN, becomes null.
        found: dict[str, Any] = json.loads(storable(text), parse_constant=lambda _: None)
    except (TypeError, ValueError, RecursionError) as error:
        return {"unreadable": type(error).__name__}
    return found


def logged(delta: Delta, lines: list[Kept], said: int) -> Delta:
    """A delta with lines that its step logged; `said`: how many characters that makes in all."""
    return {**delta, "log": lines, "said": said}


def chars_of(line: Kept) -> int:
    return LINE_CHARS + len(line[5]) + (len(encode(line[6])) if len(line) > 6 else 0)


def lines_of(entries: Iterable[Entry]) -> Iterator[LogLine]:
    """The lines in entries of a journal, in their order. Sealed ones are one line an entry."""
    for entry in entries:
        place = 0
        for delta in entry.deltas:
            # Looking is cheaper than reading all that carries no lines.
            kept = json.loads(delta).get("log") if '"log":' in delta else None
            if data_key_of(kept):
                yield LogLine(entry.version, place, "", "(sealed)", is_sealed=True)
                place += 1
            elif isinstance(kept, list):
                for line in kept:
                    yield _line(entry.version, place, line)
                    place += 1


def _line(version: int, place: int, line: Kept) -> LogLine:
    ms, level, path, step_type, attempt, text = line[:6]
    return LogLine(
        version=version,
        place=place,
        level=level,
        text=text,
        at=datetime.fromtimestamp(ms / 1_000, UTC),
        path=path,
        step_type=step_type,
        attempt=attempt,
        fields=line[6] if len(line) > 6 else None,
    )
