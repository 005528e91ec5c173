"""Parameters of steps that stand for a secret: `{secret: NAME}`.

A definition, its copies and its exports hold the name; the value is put in its place in the memory
of the worker that is about to run the step, and goes nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

SECRET = "secret"
#: Step types that write their parameters into the data, where no secret may rest. An object with
#: the one key `secret` is ordinary data to them.
WITHOUT_SECRETS = "util/"


def takes_secrets(step_type: str) -> bool:
    return not step_type.startswith(WITHOUT_SECRETS)


def is_reference(value: Any) -> bool:
    """Whether it stands for a secret."""
    return isinstance(value, Mapping) and len(value) == 1 and isinstance(value.get(SECRET), str)


def resolved(params: dict[str, Any], value_of: Callable[[str], str]) -> dict[str, Any]:
    """With the values of secrets in their places; the parameters themselves are changed."""
    for name, value in params.items():
        if type(value) in (dict, list):
            params[name] = _resolved(value, value_of)
    return params


def stand_in(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """With some text for each secret: for checks of what else the parameters say."""
    return {name: _resolved(value, lambda text: text) for name, value in params.items()}


def _resolved(value: Any, value_of: Callable[[str], str]) -> Any:
    if is_reference(value):
        return value_of(value[SECRET])
    if isinstance(value, dict):
        return {name: _resolved(item, value_of) for name, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, value_of) for item in value]
    return value
