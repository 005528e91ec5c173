"""JSON that may come in, and JSON that may go on to the next step.

Money must come out as it went in: so no NaN or Infinity, no duplicate keys, no key that is not a
string, no U+0000 (PostgreSQL refuses it), nothing that JSON would quietly change.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

Json = dict[str, Any]

#: The one key of a value that is sealed (seals/data_key.py); no other object may have it.
SEALED = "$sealed"

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode


class NotJson(ValueError):
    """The value cannot go through as JSON; the message says where and why."""


def encode(value: object) -> str:
    """Compact JSON of a value that was checked or made by us."""
    return _encode(value)


def canonical(value: object) -> str:
    """JSON with sorted keys: the same text for the same content."""
    return _encode_sorted(value)


def copied(value: Any) -> Any:
    """A copy of JSON that was checked, much quicker than deepcopy."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def checked(value: object, *, what: str, bytes_max: int, depth_max: int) -> tuple[Json, str]:
    """A clean copy of a JSON object and its text, or NotJson."""
    if not isinstance(value, dict):
        raise NotJson(f"{what} must be a JSON object, was {_kind(value)}")
    copy = _copy(value, what, depth_max)
    if SEALED in copy:
        raise NotJson(f"{what} has the key {SEALED!r}, which is kept for sealed values")
    try:
        text = _encode(copy)
    except ValueError:
        raise NotJson(f"{what} holds a number with more digits than can be stored") from None
    # A character takes at most four bytes, so short texts need no encoding to be measured.
    if len(text) * 4 > bytes_max and len(text.encode()) > bytes_max:
        raise NotJson(f"{what} is {len(text.encode())} bytes of JSON; {bytes_max} are allowed")
    return copy, text


def parse(text: str | bytes, *, what: str, bytes_max: int) -> Any:
    """JSON text from outside to a value; duplicate keys and NaN are refused."""
    if len(text) > bytes_max:
        raise NotJson(f"{what} is {len(text)} bytes; {bytes_max} are allowed")
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except NotJson as error:
        raise NotJson(f"{what}: {error}") from None
    except RecursionError:
        raise NotJson(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise NotJson(f"{what} is not JSON: {error}") from None


def _copy(value: Any, where: str, depth_left: int) -> Any:
    kind = type(value)
    if kind is str:
        return _checked_text(value, where)
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise NotJson(f"{where} is {value}, which JSON does not have")
        return value
    if depth_left <= 0:
        raise NotJson(f"{where} is nested too deeply")
    if isinstance(value, dict):
        return {
            _checked_key(key, where): _copy(item, f"{where}.{key}", depth_left - 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _copy(item, f"{where}[{index}]", depth_left - 1) for index, item in enumerate(value)
        ]
    raise NotJson(f"{where} is {_kind(value)}, which JSON does not have{_advice(value)}")


def _checked_key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise NotJson(f"{where} has the key {key!r}; keys must be strings")
    return _checked_text(key, where)


def _checked_text(text: str, where: str) -> str:
    if "\x00" in text:
        raise NotJson(f"{where} holds the character U+0000, which cannot be stored")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotJson(f"{where} holds half of a surrogate pair") from None
    return text


def _no_duplicates(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise NotJson(f"the key {twice!r} appears twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not JSON")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    if value is None:
        return "null"
    return names.get(type(value), f"a Python {type(value).__name__}")


def _advice(value: object) -> str:
    if type(value).__name__ == "Decimal":
        return "; send money as a string or as a whole number of minor units"
    return ""
