"""The one clock.

No worker's wall clock decides anything: Lua scripts ask Redis for the time and SQL asks the
database. A clock that returns None says "ask the server"; tests give one that returns a number.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int | None:
        """Milliseconds since 1970, or None to use the clock of the server that is asked."""

    def now(self) -> datetime | None:
        """The same for SQL."""


class ServerClock:
    """Production: each server uses its own time."""

    def now_ms(self) -> int | None:
        return None

    def now(self) -> datetime | None:
        return None


class VirtualClock:
    """Tests: time stands still until it is advanced."""

    def __init__(self, start_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int | None:
        return self._now_ms

    def now(self) -> datetime | None:
        return datetime.fromtimestamp(self._now_ms / 1_000, UTC)

    def advance(self, *, seconds: float = 0, days: float = 0) -> None:
        self._now_ms += int((seconds + days * 86_400) * 1_000)


def wall_ns() -> int:
    """This machine's idea of the time, for what people look at. It decides nothing."""
    return time.time_ns()
