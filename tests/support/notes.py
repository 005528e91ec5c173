"""Notes of unexpected errors, whose ids are drawn by lot."""

from __future__ import annotations

import re


def without_id(note: str | None) -> str:
    """The note with `…` for the id of an error."""
    return re.sub(r"error [0-9a-f]{12}\b", "error …", note or "")
