"""What came of calling a step, once everything a function can do is sorted into a few kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from datp_tasks.errors import StepError
from datp_tasks.model.outcome import Call, Sleep
from datp_tasks.model.payload import Json
from datp_tasks.model.status import Status


@dataclass(frozen=True, slots=True)
class Output:
    """The step was done. None: its input goes on unchanged."""

    data: Json | None
    #: The same as JSON, where that is known.
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The step ended the transaction."""

    status: Status
    note: str
    output: Json | None
    #: Names a text of the pipeline's `messages`, and what is filled in.
    code: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broken:
    """The step raised something unexpected, timed out, or returned what it must not."""

    note: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """It is not known whether the step took effect."""

    note: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A probe broke: it must be asked again, and the step not be run before it answers."""

    note: str


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A probe said that nothing had happened: run the step."""


@dataclass(frozen=True, slots=True)
class AskFirst:
    """SQL knows of an earlier try that Redis has forgotten: the step must be probed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another worker owns the transaction; this one must drop it."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """PostgreSQL could not do its part just now: the step could not be tried, or broke off in the
    middle."""

    is_tried: bool = False


@dataclass(frozen=True, slots=True)
class RunAlone:
    """Its vector could not be run together: it must run by itself, in a hop of its own."""


@dataclass(frozen=True, slots=True)
class RecordRefused:
    """SQL has a final status or a newer fence: nothing may be undone, and Redis must follow."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """It must not pass its point of no return: a cancel or an expiry was recorded first.

    The request is None if its time is over and no handler has said so yet.
    """

    request: str | None
    #: The step itself found out, so it may have had half its effect.
    mid_way: bool = False


Outcome = (
    Output
    | Ended
    | Broken
    | Doubt
    | Unanswered
    | NotStarted
    | AskFirst
    | Lost
    | Unavailable
    | RunAlone
    | RecordRefused
    | Stopped
    | Sleep
    | Call
)


class SwitchNotKept(StepError):
    """PostgreSQL could not keep just now that a step set a switch; Redis was not told of it."""
