"""Shares of what is scarce: connections, bodies, requests, long polls.

One who holds some of it gets more only while at least as much as it then holds is free. So one
alone has up to half of everything, ten get what is left fairly, and the next one always finds
something. No number has to be set for how many there will be.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from datp_tasks.api.problems import RETRY_AFTER_S, Problem, limited


class Shares:
    """What the holders have of an amount."""

    def __init__(self, amount_max: int, *, what: str) -> None:
        self._amount_max = amount_max
        self._what = what
        self._held: dict[str, int] = {}
        self.used = 0

    def take(self, holder: str, amount: int = 1) -> bool:
        """Whether it may have so much more; what it has is given back by `give_back`."""
        held = self._held.get(holder, 0) + amount
        free = self._amount_max - self.used
        # What is free includes what is asked for now.
        if amount > free or (held > amount and held > free):
            return False
        self._held[holder] = held
        self.used += amount
        return True

    def give_back(self, holder: str, amount: int = 1) -> None:
        left = self._held[holder] - amount
        self.used -= amount
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]

    def take_or_refuse(self, owner: str, amount: int = 1) -> None:
        """Take it, or raise a problem that says whether the owner or all together have too much."""
        if self.take(owner, amount):
            return
        held = self._held.get(owner, 0)
        if held:
            raise limited(
                f"{owner} has {held} of the {self._amount_max} {self._what} of this process; more "
                "are kept for others. Wait until some have ended.",
                RETRY_AFTER_S,
            )
        raise Problem(
            503,
            "busy",
            f"All {self._amount_max} {self._what} of this process are in use. Ask again later.",
            headers={"Retry-After": str(RETRY_AFTER_S)},
        )

    @contextmanager
    def held(self, owner: str) -> Iterator[None]:
        """One of them, for as long as this lasts."""
        self.take_or_refuse(owner)
        try:
            yield
        finally:
            self.give_back(owner)
