"""The one clock.

No worker's wall clock decides anything: Lua scripts ask Redis for the time and SQL asks the
database. A clock that returns None says "ask the server"; tests give one that returns a number.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int | None:
        """Milliseconds since 1970, or None to use the clock of the server that is asked."""


class ServerClock:
    """Production: each server uses its own time."""

    def now_ms(self) -> int | None:
        return None


class VirtualClock:
    """Tests: time stands still until it is advanced."""

    def __init__(self, start_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int | None:
        return self._now_ms

    def advance(self, *, seconds: float = 0, days: float = 0) -> None:
        self._now_ms += int((seconds + days * 86_400) * 1_000)
