"""What a call does, without doing it: steps that a client of threads and one of an event loop run.

A flow yields what to send or how long to pause, and is given the reply. So retries, waiting and
pagination are written once, and tested without a server.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from datp_tasks.http.api_error import ApiError, redirected, refused, unreachable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One request."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: How long the server may take beyond the usual time: a long poll says so.
    extra_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Answered:
    """One response, with header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class NoReply:
    """The connection broke, or the time was over: whether the request arrived is not known."""

    reason: str


Reply = Answered | NoReply | None
Flow = Generator[Outgoing | Pause, Reply, T]


@dataclass(frozen=True, slots=True)
class CallRetry:
    """How often and how long a call is tried again. Only what the server calls retryable is."""

    attempts_max: int = 5
    first_s: float = 0.25
    factor: float = 2.0
    pause_s_max: float = 30.0

    def pause_s(self, attempt: int, error: ApiError) -> float:
        """What the server asked for, or a time that doubles; never all clients at one moment."""
        grown_s: float = min(self.first_s * self.factor**attempt, self.pause_s_max)
        if error.retry_after_s is not None:
            return min(error.retry_after_s, self.pause_s_max) + random.uniform(0, self.first_s)
        return random.uniform(grown_s / 2, grown_s)


def call(outgoing: Outgoing, policy: CallRetry) -> Flow[Answered]:
    """The response to a request that is safe to send again, or ApiError."""
    attempt = 0
    while True:
        reply = yield outgoing
        error = _error_of(reply)
        if error is None:
            assert isinstance(reply, Answered)
            return reply
        attempt += 1
        if not error.retryable or attempt >= policy.attempts_max:
            raise error
        yield Pause(policy.pause_s(attempt - 1, error))


def _error_of(reply: Reply) -> ApiError | None:
    if isinstance(reply, Answered):
        if 300 <= reply.status < 400:
            return redirected(reply.status, reply.headers)
        failed = reply.status >= 400
        return refused(reply.status, reply.headers, reply.body) if failed else None
    return unreachable(reply.reason if isinstance(reply, NoReply) else "no reply was given")
