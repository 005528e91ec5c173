"""Names and values of switches."""

from __future__ import annotations

import json
import re

from datp_tasks.errors import InputInvalid, SwitchInvalid
from datp_tasks.model.payload import InexactNumber, NotJson, parse

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
TEXT_CHARS_MAX = 32
#: Of what a person types: far more than a switch may hold, which is refused where it is set.
TYPED_BYTES_MAX = 10_000


def switch_json(name: str, value: object) -> str:
    """The value as it is stored, or SwitchInvalid. None removes the switch."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise SwitchInvalid(
            f"a switch name is 1 to 32 letters, digits, '_', '.' or '-', was {name!r}"
        )
    if value is None:
        return ""
    if isinstance(value, str):
        if len(value) > TEXT_CHARS_MAX:
            raise SwitchInvalid(
                f"switch {name}: a text has up to {TEXT_CHARS_MAX} characters, was {len(value)}"
            )
        if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise SwitchInvalid(f"switch {name}: the text holds a character that cannot be stored")
    elif not isinstance(value, bool | int | float):
        raise SwitchInvalid(
            f"switch {name}: the value must be a boolean, a number or a text, was {value!r}"
        )
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        # Not {value!r}: a number can have more digits than Python is willing to print.
        raise SwitchInvalid(
            f"switch {name}: the value is not a number that JSON can carry"
        ) from None
    if len(text) > 200:
        raise SwitchInvalid(f"switch {name}: the number has too many digits")
    return text


def typed_value(text: str) -> bool | int | float | str:
    """What a person typed, in the console or at the command line: true, false, a number or a text.

    InputInvalid is raised for a number that would become another one.
    """
    try:
        found = parse(text, what="the value", bytes_max=TYPED_BYTES_MAX, keep_inexact=True)
    except NotJson:
        return text
    if isinstance(found, InexactNumber):
        raise InputInvalid("this number would become another one; write fewer digits")
    return found if isinstance(found, bool | int | float | str) else text
