"""Names and values of switches."""

from __future__ import annotations

import json
import re

from datp_tasks.errors import SwitchInvalid

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
TEXT_CHARS_MAX = 32


def switch_json(name: str, value: object) -> str:
    """The value as it is stored, or SwitchInvalid. None removes the switch."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise SwitchInvalid(
            f"a switch name is 1 to 32 letters, digits, '_', '.' or '-', was {name!r}"
        )
    if value is None:
        return ""
    if isinstance(value, str):
        if len(value) > TEXT_CHARS_MAX or "\x00" in value:
            raise SwitchInvalid(
                f"switch {name}: a text has up to {TEXT_CHARS_MAX} characters, was {len(value)}"
            )
    elif not isinstance(value, bool | int | float):
        raise SwitchInvalid(
            f"switch {name}: the value must be a boolean, a number or a text, was {value!r}"
        )
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        raise SwitchInvalid(f"switch {name}: {value!r} is not a JSON number") from None
    if len(text) > 200:
        raise SwitchInvalid(f"switch {name}: the number has too many digits")
    return text
