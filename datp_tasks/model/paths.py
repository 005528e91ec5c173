"""Dotted paths into JSON (`customer.accounts.0.id`) and texts with `{{dotted.path}}` in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from datp_tasks.model.payload import encode

PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
PATH_PARTS_MAX = 32
#: `lookup` returns this when there is no such field; null is a value, this is not.
MISSING: Final = type("Missing", (), {"__repr__": lambda _: "MISSING"})()


class FieldMissing(LookupError):
    """A template or a mapping names a field that the data does not have."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the data has no field {path}")
        self.path = path


class PathBlocked(ValueError):
    """A path leads through a value that is not an object."""


def path_mistake(path: object, where: str) -> str | None:
    """Why this is not a usable path, or None."""
    if not isinstance(path, str):
        return f"{where} must be a dotted path such as customer.id, was {path!r}"
    parts = path.split(".")
    if not all(parts) or len(parts) > PATH_PARTS_MAX or path != path.strip():
        return f"{where} must be a dotted path such as customer.id, was {path!r}"
    return None


def lookup(data: Any, path: str, default: Any = MISSING) -> Any:
    """The value at a path; in a list a part is an index."""
    value = data
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdecimal():
            if int(part) >= len(value):
                return default
            value = value[int(part)]
        else:
            return default
    return value


def put(target: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a path and make the objects on the way to it."""
    *way, last = path.split(".")
    inner = target
    for part in way:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise PathBlocked(f"{path} cannot be set: {part} is not an object")
    inner[last] = value


def render(template: str, data: Any, *, escape: Callable[[str], str] = str) -> str:
    """The text with every placeholder replaced; each inserted value goes through `escape`."""
    return PLACEHOLDER.sub(lambda found: escape(_text(_required(data, found[1]))), template)


def fill(value: Any, data: Any, *, default: Any = MISSING) -> Any:
    """A copy of a JSON value with its templates filled in.

    A text that is one placeholder and nothing else becomes the field's value with its type.
    Without a default a missing field raises FieldMissing.
    """
    if isinstance(value, str):
        return _filled_text(value, data, default)
    if isinstance(value, Mapping):
        return {key: fill(item, data, default=default) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, data, default=default) for item in value]
    return value


def template_mistakes(value: Any, where: str) -> list[str]:
    """What is wrong with the placeholders of a JSON value, each with its place."""
    found = (
        path_mistake(match[1], f"{at}: the placeholder {match[0]}")
        for at, text in _texts(value, where)
        for match in PLACEHOLDER.finditer(text)
    )
    return [mistake for mistake in found if mistake]


def _filled_text(text: str, data: Any, default: Any) -> Any:
    whole = PLACEHOLDER.fullmatch(text)
    if whole:
        return _required(data, whole[1], default)
    return PLACEHOLDER.sub(lambda found: _text(_required(data, found[1], default)), text)


def _required(data: Any, path: str, default: Any = MISSING) -> Any:
    value = lookup(data, path, default)
    if value is MISSING:
        raise FieldMissing(path)
    return value


def _text(value: Any) -> str:
    """A value inside a text: strings as they are, the rest as JSON, null as nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode(value)


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, f"{where}[{index}]")
