"""Which release runs here, and since when it is on this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import distribution


@cache
def built_at() -> str | None:
    """When this release was put onto this machine: wheels and images keep that time."""
    named = distribution("datp-tasks").files or []
    found = next((each for each in named if each.name == "METADATA"), None)
    if found is None:
        return None
    with suppress(OSError):
        built_s = os.stat(str(found.locate())).st_mtime
        return datetime.fromtimestamp(int(built_s), UTC).isoformat()
    return None
