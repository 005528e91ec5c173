"""What a step changed: two JSON values, line by line."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import Any

LINES_MAX = 400


@dataclass(frozen=True, slots=True)
class DiffLine:
    #: `+`, `-` or a blank.
    mark: str
    text: str


def diff(before: Any, after: Any) -> list[DiffLine]:
    """Lines of the new value, with those of the old one that are gone; long ones are cut."""
    old, new = _lines(before), _lines(after)
    found = [
        DiffLine(line[0], line[2:]) for line in difflib.ndiff(old, new) if not line.startswith("?")
    ]
    if len(found) > LINES_MAX:
        found = [*found[:LINES_MAX], DiffLine(" ", f"… {len(found) - LINES_MAX} lines more")]
    return found


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True).splitlines()[:2_000]
