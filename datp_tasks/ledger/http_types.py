"""One HTTP exchange, in words: what is sent, and the three ways it can end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole answer came."""

    status: int
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class NotSent:
    """Nothing of the request reached the other side."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """It may have arrived; no whole answer came back."""

    reason: str


Outcome = Answer | NotSent | NoAnswer
