"""Columns of many rows on their way to PostgreSQL: each list as the text of one array.

psycopg2 writes a list as ARRAY['a', 'b', …]. Then it quotes each value, and PostgreSQL parses and
casts each as an expression of its own, which costs a vector more than its rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any


def with_array_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same parameters; what no text can be made of stays as it is."""
    return {
        name: array_text(value) if type(value) is list else value for name, value in values.items()
    }


def array_text(column: list[Any]) -> Any:
    """The text of an array, or the list itself if it has values of kinds that are not known."""
    try:
        return "{" + ",".join([_TEXT_OF[type(value)](value) for value in column]) + "}"
    except KeyError:
        return column


def if_any(column: list[Any]) -> list[Any]:
    """The column, or an empty one if it holds nothing but NULL: where `unnest` takes several, it
    fills the shorter ones up with NULL."""
    return [] if column.count(None) == len(column) else column


def _quoted(value: str) -> str:
    if "\\" in value:
        value = value.replace("\\", "\\\\")
    if '"' in value:
        value = value.replace('"', '\\"')
    return f'"{value}"'


_TEXT_OF: dict[type, Callable[[Any], str]] = {
    str: _quoted,
    type(None): lambda _: "NULL",
    int: str,
    bool: lambda value: "t" if value else "f",
    datetime: lambda value: f'"{value.isoformat()}"',
}
