"""How long to wait before the next try."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff: `first_s`, then times `factor`, never above `max_s`."""

    max_attempts: int = 3
    first_s: float = 1.0
    factor: float = 2.0
    max_s: float = 300.0
    #: Spread as a share of the delay, so that many failures do not come back together.
    jitter: float = 0.1

    def __post_init__(self) -> None:
        rules = (
            ("max_attempts", self.max_attempts >= 1, "1 or more"),
            ("first_s", self.first_s >= 0, "0 or more"),
            ("factor", self.factor >= 1, "1 or more"),
            ("max_s", 0 <= self.max_s < float("inf"), "0 or more, and finite"),
            ("jitter", 0 <= self.jitter <= 1, "from 0 to 1"),
        )
        for name, holds, allowed in rules:
            if not holds:
                raise ValueError(f"retry.{name} must be {allowed}, was {getattr(self, name)!r}")

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> RetryPolicy:
        known = cls.__slots__
        for name, value in given.items():
            if name not in known:
                raise ValueError(f"retry.{name} is unknown; known are {', '.join(known)}")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"retry.{name} must be a number, was {value!r}")
        if not isinstance(given.get("max_attempts", 1), int):
            raise ValueError("retry.max_attempts must be a whole number")
        return cls(**given)

    def delay_s(self, attempt: int, rng: random.Random) -> float:
        """The pause after the given attempt (1 is the first) went wrong."""
        try:
            delay = min(self.max_s, self.first_s * float(self.factor) ** (attempt - 1))
        except OverflowError:
            delay = self.max_s if self.first_s else 0.0
        return max(0.0, delay * (1 + self.jitter * (2 * rng.random() - 1)))
