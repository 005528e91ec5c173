"""What a pipeline file may say. Every mistake is collected and named, not only the first.

Pure functions from what a user wrote to a clean mapping with the keys of the file; the classes
in `pipeline` are made from that mapping.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from datp_tasks.errors import PipelineInvalid
from datp_tasks.model import payload
from datp_tasks.model.backoff import RetryPolicy
from datp_tasks.model.input_schema import clean_schema
from datp_tasks.model.mapping import MAPPING_BYTES_MAX, MAPPING_NAME, content_mistakes
from datp_tasks.model.payee import payee_mistakes
from datp_tasks.model.pipeline_access import SUBMIT_WHO, WHO
from datp_tasks.model.pipeline_cases import cases_mistakes
from datp_tasks.model.search_attributes import clean_search
from datp_tasks.model.switch import NAME as SWITCH_NAME
from datp_tasks.model.texts_by_language import messages_mistakes
from datp_tasks.settings import GROUP_NAME

PIPELINE_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}")
STEP_TYPE = re.compile(r"[a-z0-9][a-z0-9_.-]*(/[a-z0-9][a-z0-9_.-]*)*")

DESCRIPTION_CHARS_MAX = 4_000
NAME_CHARS_MAX = 128
PARAMS_BYTES_MAX = 65_536
PARAMS_DEPTH_MAX = 32
DEFINITION_BYTES_MAX = 1_048_576
#: A definition is read as a whole by each worker; longer ones are split into child pipelines.
STEPS_MAX = 200
TIMEOUT_S_MAX = 86_400
#: A year and a day: longer is a mistake in a unit.
EXPIRES_S_MAX = 31_622_400
LONG_RUNNING_S_MAX = 315_360_000
#: Above any sensible number of tries or seconds; keeps whole numbers within what a float holds.
RETRY_NUMBER_MAX = 1_000_000_000

#: The steps that link transactions (engine/builtin/link_legs.py).
JOIN_LINK, COMMIT_LINKED = "util/link", "util/commit-linked"
#: A link of which no leg has a deadline waits for a day: the other leg may never come.
LINK_EXPIRES_S = 86_400.0

DISPATCHES = ("inline", "queue")
PIPELINE_DISPATCHES = ("inline", "step")
ON_ERRORS = ("keep", "rollback")

Rule = Callable[[Any], Any]


class _FieldError(ValueError):
    """One or more mistakes in one field; each argument is a sentence without the field's name."""


def clean_definition(raw: object, *, source: str) -> dict[str, Any]:
    """The definition as a mapping without mistakes, or PipelineInvalid with all of them."""
    mistakes: list[str] = []
    rules = PIPELINE_RULES | {"steps": _list_up_to(STEPS_MAX)}
    clean = _fields(raw, rules, required=("pipeline", "steps"), where=source, mistakes=mistakes)
    steps = enumerate(clean.get("steps", ()))
    clean["steps"] = [
        _fields(
            step,
            STEP_RULES,
            required=("type",),
            where=f"{source}: {step_label(index, step)}",
            mistakes=mistakes,
        )
        for index, step in steps
    ]
    mistakes += [
        f"{source}: {step_label(index, step)}: is finalFrom or forwards, not both"
        for index, step in enumerate(clean["steps"])
        if step.get("finalFrom") and step.get("forwards")
    ]
    mistakes += [f"{source}: {each}" for each in _link_mistakes(clean["steps"])]
    if clean.get("sealed") and clean.get("search"):
        # An index of what is sealed would have it in clear text.
        mistakes.append(f"{source}: search: a sealed pipeline has no search attributes")
    if clean.get("sealed") and clean.get("payee", {}).get("show"):
        # It rests in clear text until the end.
        mistakes.append(f"{source}: payee: of a sealed pipeline a payee is shown nothing")
    if not mistakes and len(payload.encode(clean).encode()) > DEFINITION_BYTES_MAX:
        mistakes.append(f"{source}: is more than {DEFINITION_BYTES_MAX} bytes of JSON")
    if mistakes:
        raise PipelineInvalid(mistakes)
    return clean


def _link_mistakes(steps: list[dict[str, Any]]) -> Iterator[str]:
    """A leg that cannot go back alone would commit while the other legs roll back."""
    places = [n for n, step in enumerate(steps) if step.get("type") == COMMIT_LINKED]
    for index, step in enumerate(steps[: places[-1] + 1] if places else ()):
        label, links = step_label(index, step), step.get("type") in (JOIN_LINK, COMMIT_LINKED)
        if step.get("finalFrom"):
            yield f"{label}: finalFrom must come after {COMMIT_LINKED}, which commits all legs"
        if step.get("forwards") and links:
            yield f"{label}: forwards cannot be said of it: a leg expires until {COMMIT_LINKED}"


def step_label(index: int, step: object) -> str:
    """How messages name a step: `steps[2] (bank/reserve)`."""
    step_type = step.get("type") if isinstance(step, Mapping) else None
    return f"steps[{index}] ({step_type})" if isinstance(step_type, str) else f"steps[{index}]"


def _fields(
    raw: object,
    rules: Mapping[str, Rule],
    *,
    required: Iterable[str],
    where: str,
    mistakes: list[str],
) -> dict[str, Any]:
    """Put each value through the rule of its key. A null is the same as leaving the key out."""
    if not isinstance(raw, dict):
        mistakes.append(f"{where}: must be an object with keys, was {reprlib.repr(raw)}")
        return {}
    missing = (key for key in required if raw.get(key) is None)
    mistakes.extend(f"{where}: {key}: is missing" for key in missing)
    clean: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in rules:
            mistakes.append(f"{where}: {key}: {_unknown(key, rules)}")
        elif value is not None:
            try:
                clean[key] = rules[key](value)
            except _FieldError as error:
                mistakes.extend(f"{where}: {key}: {message}" for message in error.args)
    return clean


def _unknown(key: object, known: Iterable[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(str(key).lower(), by_lower, n=1)
    if close:
        return f"is not a known key; did you mean {by_lower[close[0]]}?"
    return f"is not a known key; known are {', '.join(by_lower.values())}"


def _matching(pattern: re.Pattern[str]) -> Rule:
    def rule(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _FieldError(f"must match {pattern.pattern}, was {reprlib.repr(value)}")
        if len(value) > NAME_CHARS_MAX:
            raise _FieldError(f"has {len(value)} characters; {NAME_CHARS_MAX} are allowed")
        return value

    return rule


def _text(chars_max: int) -> Rule:
    def rule(value: object) -> str:
        if not isinstance(value, str):
            raise _FieldError(f"must be a text, was {reprlib.repr(value)}")
        if len(value) > chars_max:
            raise _FieldError(f"has {len(value)} characters; {chars_max} are allowed")
        if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise _FieldError("holds a character that cannot be stored")
        return value

    return rule


def _one_of(allowed: tuple[str, ...]) -> Rule:
    def rule(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise _FieldError(f"must be {' or '.join(allowed)}, was {reprlib.repr(value)}")
        return value

    return rule


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise _FieldError(f"must be true or false, was {reprlib.repr(value)}")
    return value


def _seconds_up_to(seconds_max: int) -> Rule:
    def rule(value: object) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= seconds_max:  # type: ignore[operator]
            raise _FieldError(
                f"must be a number above 0 and at most {seconds_max}, was {reprlib.repr(value)}"
            )
        return float(value)  # type: ignore[arg-type]

    return rule


def _params(value: object) -> payload.Json:
    return _json(value, "params", bytes_max=PARAMS_BYTES_MAX)


def _reply(value: object) -> dict[str, Any]:
    """The name of a shared mapping, or a mapping."""
    given = {"mapping": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise _FieldError(f"must be the name of a mapping, or a mapping, was {reprlib.repr(value)}")
    clean = _json(dict(given), "reply", bytes_max=2 * MAPPING_BYTES_MAX)
    name = clean.get("mapping")
    known = {"mapping", "mappingVersion", "fields", "codes", "keep"}
    mistakes = [f"{key} {_unknown(key, known)}" for key in clean.keys() - known]
    if name is not None and not (isinstance(name, str) and MAPPING_NAME.fullmatch(name)):
        mistakes.append(f"mapping must match {MAPPING_NAME.pattern}")
    if name is None or "mappingVersion" in clean:
        mistakes += content_mistakes(clean)
    elif len(clean) > 1:
        mistakes.append("has fields here, or in the mapping, not both")
    if mistakes:
        raise _FieldError(*mistakes)
    return clean


def _checked_by(mistakes_of: Callable[[object], list[str]]) -> Rule:
    """What is more than one value is checked by the module that knows it."""

    def rule(value: object) -> Any:
        found = mistakes_of(value)
        if found:
            raise _FieldError(*found)
        return _json({"value": value}, "value", bytes_max=DEFINITION_BYTES_MAX)["value"]

    return rule


def _json(value: object, what: str, *, bytes_max: int) -> payload.Json:
    try:
        limits = {"bytes_max": bytes_max, "depth_max": PARAMS_DEPTH_MAX}
        return payload.checked(value, what=what, **limits)[0]
    except payload.NotJson as error:
        raise _FieldError(str(error).removeprefix(what).lstrip(" .")) from None


def _retry(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _FieldError(f"must be an object with keys, was {reprlib.repr(value)}")
    found = (_retry_mistake(key, number) for key, number in value.items())
    mistakes = [message for message in found if message]
    if mistakes:
        raise _FieldError(*mistakes)
    return value


def _retry_mistake(key: object, number: object) -> str | None:
    known = RetryPolicy.__slots__
    if not isinstance(key, str) or key not in known:
        return f"{key} {_unknown(key, known)}"
    try:
        RetryPolicy.from_mapping({key: number})
    except ValueError as error:
        return str(error).removeprefix("retry.")
    if number > RETRY_NUMBER_MAX:  # type: ignore[operator]
        return f"{key} must be at most {RETRY_NUMBER_MAX}, was {reprlib.repr(number)}"
    return None


def _list_up_to(steps_max: int) -> Rule:
    def rule(value: object) -> list[Any] | tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _FieldError(f"must be a list, was {reprlib.repr(value)}")
        if not value:
            raise _FieldError("is empty; a pipeline has at least one step")
        if len(value) > steps_max:
            raise _FieldError(f"has {len(value)} steps; {steps_max} are allowed")
        return value

    return rule


def _access(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _FieldError(f"must be an object with keys, was {reprlib.repr(value)}")
    clean: dict[str, Any] = {}
    mistakes: list[str] = []
    for key, given in value.items():
        if key not in ACCESS_RULES:
            mistakes.append(f"{key}: {_unknown(key, ACCESS_RULES)}")
        elif given is not None:
            try:
                clean[key] = ACCESS_RULES[key](given)
            except _FieldError as error:
                mistakes.extend(f"{key}: {message}" for message in error.args)
    if mistakes:
        raise _FieldError(*mistakes)
    return clean


def _switches(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _FieldError(f"must be an object with keys, was {reprlib.repr(value)}")
    mistakes = []
    for name, who in value.items():
        if not isinstance(name, str) or not SWITCH_NAME.fullmatch(name):
            mistakes.append(f"{reprlib.repr(name)} is no name of a switch")
        elif who not in WHO:
            mistakes.append(f"{name}: must be {' or '.join(WHO)}, was {reprlib.repr(who)}")
    if mistakes:
        raise _FieldError(*mistakes)
    return dict(sorted(value.items()))


def _search(value: object) -> dict[str, Any]:
    clean, mistakes = clean_search(value)
    if mistakes:
        raise _FieldError(*mistakes)
    return clean


def _input_schema(value: object) -> dict[str, Any]:
    clean, mistakes = clean_schema(value)
    if mistakes:
        raise _FieldError(*mistakes)
    return clean


ACCESS_RULES: dict[str, Rule] = {
    "submit": _one_of(SUBMIT_WHO),
    "cancel": _one_of(WHO),
    "wake": _one_of(WHO),
    "switches": _switches,
}

PIPELINE_RULES: dict[str, Rule] = {
    "pipeline": _matching(PIPELINE_NAME),
    "description": _text(DESCRIPTION_CHARS_MAX),
    "nodeGroup": _matching(GROUP_NAME),
    "startable": _boolean,
    "dispatch": _one_of(PIPELINE_DISPATCHES),
    "onError": _one_of(ON_ERRORS),
    "expiresInSeconds": _seconds_up_to(EXPIRES_S_MAX),
    "longRunningSeconds": _seconds_up_to(LONG_RUNNING_S_MAX),
    "onLate": _matching(STEP_TYPE),
    "access": _access,
    "sealed": _boolean,
    "reply": _reply,
    "messages": _checked_by(messages_mistakes),
    "tests": _checked_by(cases_mistakes),
    "search": _search,
    "inputSchema": _input_schema,
    "payee": _checked_by(payee_mistakes),
}

STEP_RULES: dict[str, Rule] = {
    "type": _matching(STEP_TYPE),
    "name": _text(NAME_CHARS_MAX),
    "description": _text(DESCRIPTION_CHARS_MAX),
    "nodeGroup": _matching(GROUP_NAME),
    "dispatch": _one_of(DISPATCHES),
    "params": _params,
    "timeoutSeconds": _seconds_up_to(TIMEOUT_S_MAX),
    "retry": _retry,
    "checkpoint": _boolean,
    "finalFrom": _boolean,
    "forwards": _boolean,
}
