"""Search attributes: fields of inputs and outputs by which transactions can be found and sorted.

A value is kept as one text whose order, byte by byte, is that of the values: so one index serves
numbers, times and texts, and a question is a range of such texts. The first letter is the type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from datp_tasks.errors import FilterInvalid

SearchType = Literal["string", "decimal", "time", "boolean"]
SEARCH_TYPES = ("string", "decimal", "time", "boolean")
LETTERS: dict[str, str] = {"string": "s", "decimal": "n", "time": "t", "boolean": "b"}
NAME = re.compile(r"[a-z][A-Za-z0-9_]{0,39}")
PATH = re.compile(r"(input|output)(\.[^.\s]{1,100}){1,8}")
FIELDS_MAX = 16
#: Of a text; the rest is not looked at. Each value is a part of an index.
CHARS_MAX = 200
DIGITS_MAX = 60
EXPONENT_MAX = 4_000
#: The text after all others that begin alike.
AFTER = "\x01"
OPERATORS = ("eq", "gt", "gte", "lt", "lte", "prefix")
#: As a command line writes them; the longer ones first.
SIGNS = {">=": "gte", "<=": "lte", "^=": "prefix", ">": "gt", "<": "lt", "=": "eq"}


@dataclass(frozen=True, slots=True)
class SearchField:
    """One attribute of a pipeline."""

    name: str
    source: str
    path: tuple[str, ...]
    type: SearchType

    @classmethod
    def from_mapping(cls, name: str, clean: Mapping[str, Any]) -> SearchField:
        source, *path = clean["from"].split(".")
        return cls(name, source, tuple(path), clean["type"])

    def to_mapping(self) -> dict[str, Any]:
        return {"from": ".".join((self.source, *self.path)), "type": self.type}

    def text_of(self, document: Any) -> str | None:
        """What is kept of this input or output; None if it has no such value."""
        for part in self.path:
            document = document.get(part) if isinstance(document, Mapping) else None
        return None if document is None else text_of(self.type, document)


def attributes_of(
    fields: Iterable[SearchField], source: str, document: Any
) -> tuple[tuple[str, str], ...]:
    """Names and texts of the attributes that come from the input, or from the output."""
    found = ((each.name, each.text_of(document)) for each in fields if each.source == source)
    return tuple((name, text) for name, text in found if text is not None)


def text_of(kind: str, value: Any) -> str | None:
    """The text of a value, whose order is that of the values of its type."""
    made = MAKERS[kind](value)
    return None if made is None else LETTERS[kind] + made


def _string(value: Any) -> str | None:
    return value[:CHARS_MAX] if isinstance(value, str) and "\0" not in value else None


def _boolean(value: Any) -> str | None:
    return ("1" if value else "0") if isinstance(value, bool) else None


def _time(value: Any) -> str | None:
    try:
        moment = datetime.fromisoformat(value)
        if moment.utcoffset() is None:
            return None
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    except (TypeError, ValueError, OverflowError):
        return None


def _decimal(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    if not number.is_finite():
        return None
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    # As 0.ddd times a power of ten.
    power = exponent + len(text)
    text = text.rstrip("0")
    if not text:
        return "1"
    if len(text) > DIGITS_MAX or abs(power) > EXPONENT_MAX:
        return None
    made = f"{power + EXPONENT_MAX:04d}{text}"
    if not sign:
        return f"2{made}"
    # A larger amount below zero is less: digits are turned round, and a shorter one comes later.
    return "0" + "".join(str(9 - int(digit)) for digit in made) + "~"


MAKERS = {"string": _string, "decimal": _decimal, "time": _time, "boolean": _boolean}


@dataclass(frozen=True, slots=True)
class SearchCondition:
    """What an attribute must be: within one of these ranges of texts, the upper end excluded."""

    name: str
    ranges: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, name: str, operator: str, value: str) -> SearchCondition:
        """From what a client wrote. Of which type the attribute is depends on the pipeline, so the
        value is read as each type that it can be."""
        if not NAME.fullmatch(name) or operator not in OPERATORS:
            raise FilterInvalid(
                f"a search attribute is asked for as name[operator]=value, with an operator of "
                f"{', '.join(OPERATORS)}; was {name!r:.60}[{operator!r:.20}]"
            )
        ranges = [
            _range(LETTERS[kind], made, operator)
            for kind in SEARCH_TYPES
            if (made := MAKERS[kind](_read(kind, value))) is not None
            and (operator != "prefix" or kind == "string")
        ]
        return cls(name, tuple(ranges))

    @classmethod
    def from_text(cls, text: str) -> SearchCondition:
        """From `amount>=100`, as a command line has it."""
        return cls.of(*parts_of(text))

    @property
    def low(self) -> str:
        return min((low for low, _ in self.ranges), default=AFTER)

    @property
    def high(self) -> str:
        return max((high for _, high in self.ranges), default=AFTER)


def parts_of(text: str) -> tuple[str, str, str]:
    """The name, the operator and the value in `amount>=100`."""
    found = re.match(r"([^<>=^]+)(>=|<=|\^=|>|<|=)(.*)", text, re.DOTALL)
    if found is None:
        raise FilterInvalid(
            f"a condition is name, one of {' '.join(SIGNS)} and a value; was {text!r:.100}"
        )
    return found[1].strip(), SIGNS[found[2]], found[3].strip()


def _read(kind: str, value: str) -> Any:
    return {"true": True, "false": False}.get(value) if kind == "boolean" else value


def _range(letter: str, made: str, operator: str) -> tuple[str, str]:
    text, end = letter + made, chr(ord(letter) + 1)
    match operator:
        case "eq":
            return text, text + AFTER
        case "gt":
            return text + AFTER, end
        case "gte":
            return text, end
        case "lt":
            return letter, text
        case "lte":
            return letter, text + AFTER
        case _:
            return text, text + "\U0010ffff"


def clean_search(value: object) -> tuple[dict[str, Any], list[str]]:
    """What a pipeline file says under `search`, and the mistakes in it."""
    if not isinstance(value, dict):
        return {}, ["must be an object with keys"]
    mistakes: list[str] = []
    if len(value) > FIELDS_MAX:
        mistakes.append(f"has {len(value)} attributes; {FIELDS_MAX} are allowed")
    for name, given in value.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            mistakes.append(f"{name!r:.60} is no name of an attribute: use letters and digits")
        elif not isinstance(given, dict) or given.keys() != {"from", "type"}:
            mistakes.append(f"{name}: must be {{from: input.…, type: …}}")
        elif not isinstance(given["from"], str) or not PATH.fullmatch(given["from"]):
            mistakes.append(f"{name}: from must be a path as input.amount or output.bank.id")
        elif given["type"] not in SEARCH_TYPES:
            mistakes.append(f"{name}: type must be one of {', '.join(SEARCH_TYPES)}")
    if mistakes:
        return {}, mistakes
    return {name: dict(sorted(value[name].items())) for name in sorted(value)}, []


def fields_of(clean: Mapping[str, Mapping[str, Any]] | None) -> tuple[SearchField, ...]:
    return tuple(SearchField.from_mapping(name, each) for name, each in (clean or {}).items())


def mapping_of(fields: Sequence[SearchField]) -> dict[str, Any]:
    return {each.name: each.to_mapping() for each in fields}
