"""JSON that may come in, and JSON that may go on to the next step.

Money must come out as it went in: so no NaN or Infinity, no duplicate keys, no key that is not a
string, no U+0000 (PostgreSQL refuses it), no number that a float would round, nothing that JSON
would quietly change. What is refused is named with its place, which is put together only then: a
path per value would cost time that grows with the square of the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, NoReturn

#: Of inputs and outputs: JSON deeper than this is a mistake or an attack on recursive readers.
DEPTH_MAX = 32
#: Of a step. As much as a request by default: what one step hands to the next is stored in the
#: same places.
OUTPUT_BYTES_MAX = 262_144
Json = dict[str, Any]

#: Of what a client sent, this much is repeated in a message.
SHOWN_CHARS_MAX = 60
#: The one key of a value that is sealed (seals/data_key.py); no other object may have it.
SEALED = "$sealed"


#: Most values are one of these, and need no copy.
_SCALARS = frozenset((str, int, float, bool, type(None)))


class NotJson(ValueError):
    """The value cannot go through as JSON; the message says where and why."""

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        #: The place as a JSON pointer, where it is known.
        self.pointer = pointer


class InexactNumber:
    """A number of a JSON text that would become another one as a float.

    It is no number for any check, so it is refused with its place; and the text can be compared
    with what was accepted before.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class _Refused(Exception):
    """Why a value is refused; its place is put together on the way out, from its end."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.place: list[str | int] = []


def _as_float(value: object) -> float:
    """As it was before numbers were checked, so that old fingerprints can be compared."""
    if isinstance(value, InexactNumber):
        return float(value.text)
    raise TypeError(f"{_kind(value)} is not JSON")


def _quick_encoder() -> Callable[[object], str]:
    """What `JSONEncoder.encode` does, with the encoder of the C library made once and not for each
    value; where Python has none, as it is."""
    whole = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return whole.encode
    # No markers (what was checked or made by us is no ring), no indent, and neither sorted nor
    # skipped keys, nor NaN.
    options = (None, whole.default, json.encoder.encode_basestring, None, ":", ",")
    parts = make(*options, False, False, False)
    return lambda value: "".join(parts(value, 0))


_encode = _quick_encoder()
_whole = json.JSONDecoder()
_encode_sorted = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True, default=_as_float
).encode


def encode(value: object) -> str:
    """Compact JSON of a value that was checked or made by us."""
    return _encode(value)


def decode(text: str) -> Any:
    """The value of JSON that was made by us, so that nothing needs to be looked for around it."""
    value, end = _whole.raw_decode(text)
    # The other one says what is wrong with what comes after it.
    return value if end == len(text) else json.loads(text)


def canonical(value: object) -> str:
    """JSON with sorted keys: the same text for the same content."""
    return _encode_sorted(value)


def copied(value: Any) -> Any:
    """A copy of JSON that was checked, much quicker than deepcopy."""
    if isinstance(value, dict):
        return {
            key: item if type(item) in _SCALARS else copied(item) for key, item in value.items()
        }
    if isinstance(value, list):
        return [item if type(item) in _SCALARS else copied(item) for item in value]
    return value


def checked(value: object, *, what: str, bytes_max: int, depth_max: int) -> tuple[Json, str]:
    """A clean copy of a JSON object and its text, or NotJson."""
    if not isinstance(value, dict):
        raise NotJson(f"{what} must be a JSON object, was {_kind(value)}", f"/{what}")
    try:
        copy = _copy(value, depth_max)
    except _Refused as refused:
        raise _placed(refused, what) from None
    if SEALED in copy:
        text = f"{what} has the key {SEALED!r}, which is kept for sealed values"
        raise NotJson(text, f"/{what}/{SEALED}")
    try:
        text = _encode(copy)
    except ValueError:
        raise NotJson(f"{what} holds a number with more digits than can be stored") from None
    # A character takes at most four bytes, so short texts need no encoding to be measured.
    if len(text) * 4 > bytes_max and len(text.encode()) > bytes_max:
        raise NotJson(f"{what} is {len(text.encode())} bytes of JSON; {bytes_max} are allowed")
    return copy, text


def parse(text: str | bytes, *, what: str, bytes_max: int, keep_inexact: bool = False) -> Any:
    """JSON text from outside to a value; duplicate keys and NaN are refused.

    So is a number that a float would change; with `keep_inexact` it comes out as InexactNumber, for
    one who has something else to look at before it refuses anything.
    """
    if len(text) > bytes_max:
        raise NotJson(f"{what} is {len(text)} bytes; {bytes_max} are allowed")
    inexact: list[InexactNumber] = []
    try:
        found = _decoded(text) if keep_inexact else _decoder(inexact).decode(_as_text(text))
    except NotJson as error:
        raise NotJson(f"{what}: {error}") from None
    except RecursionError:
        raise NotJson(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise NotJson(f"{what} is not JSON: {error}") from None
    if inexact:
        refused = _Refused(_inexact(inexact[0]))
        refused.place = _place_of(inexact[0], found)
        raise _placed(refused, what, pointer_root="")
    return found


def _as_text(text: str | bytes) -> str:
    if isinstance(text, bytes):
        return text.decode(json.detect_encoding(text), "surrogatepass")
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark")
    return text


def _decoder(inexact: list[InexactNumber] | None) -> json.JSONDecoder:
    """Numbers that a float would change are InexactNumber, and are added to the list."""

    def number(digits: str) -> float | InexactNumber:
        value = float(digits)
        if repr(value) == digits or _is_same(value, digits):
            return value
        found = InexactNumber(digits)
        if inexact is not None:
            inexact.append(found)
        return found

    return json.JSONDecoder(
        object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=number
    )


def pointer(place: list[str | int]) -> str:
    """A JSON pointer (RFC 6901); long names are cut."""
    parts = [str(part).replace("~", "~0").replace("/", "~1") for part in place]
    return "".join(f"/{part[:SHOWN_CHARS_MAX]}" for part in parts)


def first_twice(names: Iterable[str]) -> str | None:
    """The first name that comes a second time; in time that grows with their number only."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _is_same(value: float, digits: str) -> bool:
    if value in (float("inf"), float("-inf")):
        return False
    try:
        return Decimal(repr(value)) == Decimal(digits)
    except ArithmeticError:
        # An exponent that is out of all bounds.
        return False


def _inexact(number: InexactNumber) -> str:
    digits = number.text
    return (
        f"is {digits[:SHOWN_CHARS_MAX]}{'…' * (len(digits) > SHOWN_CHARS_MAX)}, which would be "
        f"stored as {float(digits)!r}; send it as a string or as a whole number of minor units"
    )


def _place_of(wanted: InexactNumber, root: Any) -> list[str | int]:
    """Where it is, from its end. Without recursion: the text may be nested too deeply for it."""
    waiting: list[tuple[Any, Any]] = [(root, None)]
    while waiting:
        value, way = waiting.pop()
        if value is wanted:
            place: list[str | int] = []
            while way is not None:
                part, way = way
                place.append(part)
            return place
        if isinstance(value, dict):
            waiting += [(item, (key, way)) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(item, (index, way)) for index, item in enumerate(value)]
    return []


def _placed(refused: _Refused, what: str, pointer_root: str | None = None) -> NotJson:
    place = refused.place[::-1]
    shown = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part!s:.{SHOWN_CHARS_MAX}}" for part in place
    )
    root = f"/{what}" if pointer_root is None else pointer_root
    return NotJson(f"{what}{shown} {refused.why}", root + pointer(place))


def _copy(value: Any, depth_left: int) -> Any:
    kind = type(value)
    if kind is str:
        return _checked_text(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise _Refused(f"is {value}, which JSON does not have")
        return value
    if kind is InexactNumber:
        raise _Refused(_inexact(value))
    if isinstance(value, dict):
        return _copy_object(value, depth_left)
    if isinstance(value, list | tuple):
        return _copy_list(value, depth_left)
    raise _Refused(f"is {_kind(value)}, which JSON does not have{_advice(value)}")


def _copy_object(value: dict[Any, Any], depth_left: int) -> Json:
    copy: Json = {}
    if depth_left <= 0:
        raise _Refused("is nested too deeply")
    for key, item in value.items():
        if not isinstance(key, str):
            raise _Refused(f"has the key {key!r:.{SHOWN_CHARS_MAX}}; keys must be strings")
        _checked_text(key)
        try:
            copy[key] = _copy(item, depth_left - 1)
        except _Refused as refused:
            refused.place.append(key)
            raise
    return copy


def _copy_list(value: list[Any] | tuple[Any, ...], depth_left: int) -> list[Any]:
    copy: list[Any] = []
    if depth_left <= 0:
        raise _Refused("is nested too deeply")
    for item in value:
        try:
            copy.append(_copy(item, depth_left - 1))
        except _Refused as refused:
            refused.place.append(len(copy))
            raise
    return copy


def _checked_text(text: str) -> str:
    if "\x00" in text:
        raise _Refused("holds the character U+0000, which cannot be stored")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _Refused("holds half of a surrogate pair") from None
    return text


def _no_duplicates(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotJson(f"the key {first_twice(key for key, _ in pairs)!r:.80} appears twice")
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


#: Made once: that takes as long as reading a small text.
_keeping_decoder = _decoder(None)


def _decoded(text: str | bytes) -> Any:
    """With numbers that a float would change as InexactNumber."""
    return _keeping_decoder.decode(_as_text(text))
