"""What came of calling a step, once everything a function can do is sorted into a few kinds."""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.model.outcome import Call, Sleep
from datp_tasks.model.payload import Json
from datp_tasks.model.status import Status


@dataclass(frozen=True, slots=True)
class Output:
    """The step was done. None: its input goes on unchanged."""

    data: Json | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The step ended the transaction."""

    status: Status
    note: str
    output: Json | None


@dataclass(frozen=True, slots=True)
class Broken:
    """The step raised something unexpected, timed out, or returned what it must not."""

    note: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """Nobody knows whether the step took effect."""

    note: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A probe broke: it must be asked again, and the step not be run before it answers."""

    note: str


@dataclass(frozen=True, slots=True)
class Again:
    """Nothing happened yet: a probe said so. Run the step."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another worker owns the transaction; this one must drop it."""


@dataclass(frozen=True, slots=True)
class Away:
    """SQL was away, so a transactional step could not even be tried."""


Outcome = Output | Ended | Broken | Doubt | Unanswered | Again | Lost | Away | Sleep | Call
