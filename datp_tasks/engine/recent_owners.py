"""Whose transactions a worker had lately: one that works for a single owner need share nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable

RECENT_S = 1.0


class RecentOwners:
    def __init__(self) -> None:
        self._seen_s: dict[str, float] = {}

    def saw(self, owners: Iterable[str]) -> None:
        now_s = time.monotonic()
        self._seen_s = {
            owner: seen_s for owner, seen_s in self._seen_s.items() if now_s - seen_s < RECENT_S
        } | dict.fromkeys(owners, now_s)

    def are_others(self, owner: str) -> bool:
        """Whether another owner had something here a moment ago."""
        since_s = time.monotonic() - RECENT_S
        return any(each != owner and at_s > since_s for each, at_s in self._seen_s.items())
