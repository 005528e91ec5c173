"""JSON Schema of a Python type: of a TypedDict that a step takes, or of a dataclass."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from datp_tasks.errors import PipelineInvalid

SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    # As JSON has them: exact.
    Decimal: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    Any: {},
}
DEPTH_MAX = 16


class Untyped(Exception):
    """The type does not say what its values are in JSON."""


def is_record(kind: Any) -> bool:
    """Whether a type names its fields."""
    return is_typeddict(kind) or (isinstance(kind, type) and dataclasses.is_dataclass(kind))


def schema_of(kind: Any, *, depth: int = 0) -> dict[str, Any]:
    """Raises Untyped for what has no JSON, or contains itself."""
    if depth > DEPTH_MAX:
        raise Untyped(f"{kind!r:.100} is nested too deeply")
    if is_record(kind):
        return _record(kind, depth)
    origin, given = get_origin(kind), get_args(kind)
    if origin in (Annotated, Required, NotRequired):
        return schema_of(given[0], depth=depth)
    if origin is Literal:
        return {"enum": list(given)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, depth=depth + 1) for each in given]}
    if kind is list or origin is list:
        items = schema_of(given[0], depth=depth + 1) if given else {}
        return {"type": "array", "items": items} if items else {"type": "array"}
    if kind is dict or origin in (dict, Mapping):
        values = schema_of(given[1], depth=depth + 1) if given else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [each.value for each in kind]}
    try:
        return dict(SIMPLE[kind])
    except (KeyError, TypeError):
        raise Untyped(f"{kind!r:.100} has no JSON") from None


def given_schema(pipeline: str, given: Mapping[str, Any] | type | None) -> Any:
    """A JSON Schema as it is, or that of a TypedDict or dataclass."""
    if not isinstance(given, type):
        return dict(given) if isinstance(given, Mapping) else given
    try:
        if not is_record(given):
            raise Untyped("a TypedDict or a dataclass is wanted")
        return schema_of(given)
    except Untyped as error:
        raise PipelineInvalid([f"{pipeline}: inputSchema: {error}"]) from None


def _record(kind: Any, depth: int) -> dict[str, Any]:
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError) as error:
        raise Untyped(f"{kind!r:.100}: {error}") from None
    fields = {name: schema_of(each, depth=depth + 1) for name, each in hints.items()}
    required = sorted(_required(kind, hints))
    schema: dict[str, Any] = {"type": "object", "properties": fields}
    return {**schema, "required": required} if required else schema


def _required(kind: Any, hints: Mapping[str, Any]) -> set[str]:
    if not is_typeddict(kind):
        no = dataclasses.MISSING
        return {
            each.name
            for each in dataclasses.fields(kind)
            if each.init and each.default is no and each.default_factory is no
        }
    # With postponed annotations the class itself does not know which are NotRequired.
    marked = {name: get_origin(each) for name, each in hints.items()}
    known: frozenset[str] = kind.__required_keys__
    return {
        name
        for name, mark in marked.items()
        if mark is Required or (mark is not NotRequired and name in known)
    }
