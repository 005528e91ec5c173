"""What a step may say: a closed list.

A step returns its output (a dict), None (its input goes on unchanged), `Sleep` or `Call`; it
raises `Fail` or `Abort`. A probe returns `Done`, `NotDone` or `DontKnow`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, init=False)
class Sleep:
    """Run this step again, with the same input, after some seconds or when a switch is set."""

    seconds: float
    switch: str | None

    #: Without a time: five minutes, or two hours when a switch is awaited.
    DEFAULT_S = 300.0
    DEFAULT_SWITCH_S = 7_200.0
    #: A year and a day: longer is a mistake in a unit, and is cut to this.
    SECONDS_MAX = 31_622_400

    def __init__(self, seconds: float | None = None, switch: str | None = None) -> None:
        if seconds is None:
            seconds = self.DEFAULT_S if switch is None else self.DEFAULT_SWITCH_S
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"Sleep(seconds=) must be 0 or more, was {seconds!r}")
        object.__setattr__(self, "seconds", float(seconds))
        object.__setattr__(self, "switch", switch)


@dataclass(frozen=True, slots=True)
class Call:
    """Run another pipeline; its output becomes the output of this step."""

    pipeline: str
    data: Mapping[str, Any] | None = None


class EndingOutcome(Exception):
    """Base of what a step raises to end its transaction."""

    def __init__(
        self,
        note: str = "",
        output: Mapping[str, Any] | None = None,
        *,
        code: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(note or code)
        self.note = note or code
        self.output = dict(output) if output is not None else None
        #: Names a text of the pipeline's `messages`, in which the params are filled in.
        self.code = code
        self.params = dict(params or {})


class Fail(EndingOutcome):
    """End the transaction as `failed`; the steps done before are rolled back."""


class Abort(EndingOutcome):
    """End the transaction as `aborted`; nothing is rolled back."""


@dataclass(frozen=True, slots=True)
class Done:
    """A probe found that the interrupted step had taken effect, with this output."""

    output: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """A probe found that the interrupted step had not taken effect; it may run again."""


@dataclass(frozen=True, slots=True)
class DontKnow:
    """A probe could not tell; the transaction is parked in doubt."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Retry:
    """A try of a vector step broke for one item; its retry policy decides what comes next."""

    note: str = ""
