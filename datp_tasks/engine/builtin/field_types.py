"""The types a field can be required to have. Money is never a float."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any

from datp_tasks.engine.builtin.params import is_number

AMOUNT = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,18})?")
WHOLE = re.compile(r"-?[0-9]{1,30}")
CURRENCY = re.compile(r"[A-Z]{3}")
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
TIME = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?")
TIMESTAMP = re.compile(rf"{DATE.pattern}T{TIME.pattern}(Z|[+-][0-9]{{2}}:[0-9]{{2}})")
SCALE_MAX = 18


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return _is_integer(value) or _matches(AMOUNT, value)


def _is_amount3(value: Any) -> bool:
    if not isinstance(value, Mapping) or set(value) != {"currency", "unscaledAmount", "scale"}:
        return False
    unscaled, scale = value["unscaledAmount"], value["scale"]
    return (
        _matches(CURRENCY, value["currency"])
        and (_is_integer(unscaled) or _matches(WHOLE, unscaled))
        and _is_integer(scale)
        and 0 <= scale <= SCALE_MAX
    )


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _parses(pattern: re.Pattern[str], parse: Callable[[str], object]) -> Callable[[Any], bool]:
    """The pattern fixes the form, the parser refuses what the calendar does not have."""

    def holds(value: Any) -> bool:
        if not _matches(pattern, value):
            return False
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return holds


#: Each type with its test and the words that a client reads when the test fails.
TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "string": (lambda value: isinstance(value, str), "text"),
    "integer": (_is_integer, "a whole number"),
    "number": (is_number, "a number"),
    "amount": (_is_amount, 'a decimal text such as "12.50" or a whole number'),
    "amount3": (_is_amount3, "an object of currency, unscaledAmount and scale"),
    "boolean": (lambda value: isinstance(value, bool), "true or false"),
    "date": (_parses(DATE, date.fromisoformat), "a date such as 2026-12-31"),
    "time": (_parses(TIME, time.fromisoformat), "a time such as 23:59 or 23:59:59"),
    "timestamp": (
        _parses(TIMESTAMP, datetime.fromisoformat),
        "a timestamp with its offset, such as 2026-12-31T23:59:59Z",
    ),
    "object": (lambda value: isinstance(value, Mapping), "an object"),
    "list": (lambda value: isinstance(value, list), "a list"),
}
