"""What the checks of step parameters have in common. Each mistake is one plain sentence."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.model.outcome import Sleep

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

#: What a note says instead of a value that is sealed.
SEALED_VALUE = "a sealed value"
#: A pipeline must not ask for a longer sleep than the engine allows.
SLEEP_S_MAX = Sleep.SECONDS_MAX
KINDS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "true or false": (bool,),
    "an object": (Mapping,),
    "a list": (list, tuple),
}


#: The same for those who read a JSON schema.
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "any": {},
    "text": {"type": "string"},
    "true or false": {"type": "boolean"},
    "an object": {"type": "object"},
    "a list": {"type": "array"},
}


def schema_of(known: Mapping[str, str], *required: str, **more: Mapping[str, Any]) -> Any:
    """The JSON schema of params: their kinds, and more of those of which more is known."""
    return {
        "type": "object",
        "properties": {
            name: {**SCHEMAS[kind], **more.get(name, {})} for name, kind in known.items()
        },
        "required": list(required),
        "additionalProperties": False,
    }


#: A duration, in seconds.
SECONDS: Mapping[str, Any] = {"type": "number", "minimum": 0, "maximum": SLEEP_S_MAX}


def mistakes_in(params: Mapping[str, Any], known: Mapping[str, str]) -> list[str]:
    """Unknown names and values of the wrong kind; `known` maps a name to a kind or to "any"."""
    mistakes = []
    for name, value in params.items():
        if name not in known:
            mistakes.append(f"{name} is unknown{_did_you_mean(name, known)}")
        elif known[name] != "any" and not isinstance(value, KINDS[known[name]]):
            mistakes.append(f"{name} must be {known[name]}, was {value!r}")
    return mistakes


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def seconds_mistakes(
    params: Mapping[str, Any], *names: str, low_s: float = 0, high_s: float = SLEEP_S_MAX
) -> list[str]:
    """Durations that are given but are not numbers within the limits."""
    return [
        f"{name} must be a number of seconds from {low_s} to {high_s}, was {params[name]!r}"
        for name in names
        if name in params and not (is_number(params[name]) and low_s <= params[name] <= high_s)
    ]


def same(left: object, right: object) -> bool:
    """Equal as JSON: true is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def as_list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def shown(value: object, chars_max: int = 60) -> str:
    """A value in a note: short, whatever the client sent."""
    text = repr(value)
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def told(ctx: StepContext, value: object, chars_max: int = 60) -> str:
    """The same, unless the data is sealed: notes are not."""
    return SEALED_VALUE if ctx.is_sealed else shown(value, chars_max)


def _did_you_mean(name: object, known: Mapping[str, str]) -> str:
    if not known:
        return "; it takes none"
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(sorted(known))}"
