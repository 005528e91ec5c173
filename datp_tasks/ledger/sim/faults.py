"""What the stand-in can be told to do wrong.

A fault is {"on": "post" or "get", "do": one of the words below} with "times" (how often) or
"share" (a probability), "ms" for the late ones and "service" to hit one scabbard service only.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Answers to a POST: status, error code, whether the batch is accepted all the same.
ANSWERS: dict[str, tuple[int, int | None, bool]] = {
    "400": (400, 30, False),
    "401": (401, None, False),
    "403": (403, None, False),
    "404": (404, None, False),
    "408": (408, 19, False),
    "413": (413, None, False),
    "429": (429, 31, False),
    "500": (500, 10, False),
    "500-accepted": (500, 10, True),
    "503-15": (503, 15, False),
    "503-17": (503, 17, False),
    "503-17-accepted": (503, 17, True),
    "503-18": (503, 18, False),
    "503-18-accepted": (503, 18, True),
    "302": (302, None, False),
}
POST_WORDS = (
    *ANSWERS,
    "drop-before",
    "drop-after",
    "cut",
    "late-before",
    "late-after",
)
GET_WORDS = ("drop", "500", "garbage", "late", "unknown")


class FaultInvalid(ValueError):
    """The fault is not one that the stand-in knows."""


@dataclass(slots=True)
class Fault:
    on: str
    do: str
    times: int | None = None
    share: float = 1.0
    ms: float = 0.0
    service: str | None = None

    @classmethod
    def from_mapping(cls, given: Any) -> Fault:
        try:
            fault = cls(**given)
        except TypeError as error:
            raise FaultInvalid(f"a fault is an object: {error}") from None
        words = {"post": POST_WORDS, "get": GET_WORDS}.get(fault.on, ())
        if fault.do not in words:
            raise FaultInvalid(f"there is no fault {fault.do!r} on {fault.on!r}")
        return fault


class Faults:
    def __init__(self, seed: int | None = None) -> None:
        self._faults: list[Fault] = []
        self._rng = random.Random(seed)
        #: How often each word was used.
        self.used: dict[str, int] = {}

    def set(self, faults: Sequence[Fault]) -> None:
        self._faults = list(faults)

    def pick(self, on: str, service: str) -> Fault | None:
        """The first fault that applies to this request."""
        for fault in self._faults:
            if fault.on != on or fault.service not in (None, service) or fault.times == 0:
                continue
            if self._rng.random() >= fault.share:
                continue
            if fault.times is not None:
                fault.times -= 1
            word = f"{on} {fault.do}"
            self.used[word] = self.used.get(word, 0) + 1
            return fault
        return None
