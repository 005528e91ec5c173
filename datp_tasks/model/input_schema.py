"""What the input of a pipeline must be: JSON Schema 2020-12, within bounds.

A schema comes from people who may apply pipelines, an input from anyone with a key: so neither may
keep a process busy. References lead only into the schema itself; size, depth and patterns are
bounded; and each check of an input has a number of steps that it may take. `format` is an
annotation, as the specification has it by default.
"""

from __future__ import annotations

import json
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from datp_tasks.errors import InputInvalid
from datp_tasks.model import payload

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_BYTES_MAX = 65_536
SCHEMA_DEPTH_MAX = 32
PATTERN_CHARS_MAX = 500
#: Keywords that an input is checked against; a usual schema takes some dozens.
STEPS_MAX = 50_000
#: Characters that a pattern may try for one step.
TRIES_PER_STEP = 200
#: Entries of an `enum` that are compared for one step.
ENTRIES_PER_STEP = 50
#: Of the mistakes of one input.
MISTAKES_MAX = 20
#: Where a schema could lead out of itself, or to what is not known before it is used.
REFUSED = ("$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$vocabulary", "$id", "id")
SCHEMAS_KEPT = 256
#: Keywords whose values are no schemas: what is in them is not looked at.
VALUES = ("const", "enum", "examples", "default")


#: Keywords under which names are a user's, and not those of keywords.
NAMED = ("properties", "$defs", "patternProperties", "dependentSchemas")


class TooCostly(Exception):
    """More steps than a check may take."""


def clean_schema(value: object) -> tuple[dict[str, Any], list[str]]:
    """A schema that can be used, and the mistakes in it."""
    if not isinstance(value, dict):
        return {}, ["must be a JSON Schema as an object"]
    try:
        clean, text = payload.checked(
            value, what="it", bytes_max=SCHEMA_BYTES_MAX, depth_max=SCHEMA_DEPTH_MAX
        )
    except payload.NotJson as error:
        return {}, [str(error)]
    dialect = clean.get("$schema", DIALECT)
    if dialect not in (DIALECT, f"{DIALECT}#"):
        return {}, [f"$schema must be {DIALECT}, was {dialect!r:.100}"]
    mistakes = list(_refusals(clean, clean, "#"))
    if not mistakes:
        mistakes = _misformed(clean)
    return (json.loads(text), []) if not mistakes else ({}, mistakes[:MISTAKES_MAX])


def _misformed(schema: dict[str, Any]) -> list[str]:
    from jsonschema import Draft202012Validator

    checker = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    found = [
        f"#/{'/'.join(map(str, error.absolute_path))}: {error.message:.200}"
        for error in checker.iter_errors(schema)
    ]
    if not found and schema.get("type", "object") != "object":
        found.append('#/type: an input is always an object, so the type must be "object"')
    return found


def _refusals(node: Any, root: dict[str, Any], place: str, holder: str = "") -> Iterator[str]:
    """References out of the schema, and patterns that could take for ever. `holder` is the keyword
    under which the names of this node are a user's: a property may be called `properties`."""
    if isinstance(node, list):
        for number, each in enumerate(node):
            yield from _refusals(each, root, f"{place}/{number}")
    elif isinstance(node, dict):
        for key, value in node.items():
            here = f"{place}/{key}"
            if holder == "patternProperties":
                yield from _pattern_mistakes(key, here)
            if holder:
                yield from _refusals(value, root, here)
            else:
                yield from _keyword_refusals(key, value, root, here)


def _keyword_refusals(key: str, value: Any, root: dict[str, Any], here: str) -> Iterator[str]:
    if key in REFUSED:
        yield f"{here}: is not possible in the schema of an input"
    elif key == "$ref":
        yield from _reference_mistakes(value, root, here)
    elif key == "pattern":
        yield from _pattern_mistakes(value, here)
    elif key not in VALUES:
        yield from _refusals(value, root, here, key if key in NAMED else "")


def _reference_mistakes(value: object, root: dict[str, Any], place: str) -> Iterator[str]:
    if not isinstance(value, str) or not (value == "#" or value.startswith("#/")) or "%" in value:
        yield f"{place}: must lead into this schema, as #/$defs/name; was {value!r:.100}"
        return
    found: Any = root
    holder = ""
    for part in value.removeprefix("#").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        # What is in the value of such a keyword was not looked at.
        if not isinstance(found, dict) or part not in found or (not holder and part in VALUES):
            yield f"{place}: there is no schema at {value[:100]}"
            return
        found = found[part]
        holder = part if not holder and part in NAMED else ""
    if holder:
        yield f"{place}: there is no schema at {value[:100]}"


def _pattern_mistakes(value: object, place: str) -> Iterator[str]:
    if not isinstance(value, str) or len(value) > PATTERN_CHARS_MAX:
        yield f"{place}: a pattern is a text of up to {PATTERN_CHARS_MAX} characters"
        return
    try:
        repeats_of(value)
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        yield f"{place}: {error}"


@lru_cache(maxsize=SCHEMAS_KEPT)
def repeats_of(pattern: str) -> tuple[int, ...]:
    """How many ways each repeat or choice of a pattern has; ValueError if one is within another, or
    the pattern needs to remember or look around: such patterns can take exponentially long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Python's own reading of a pattern; its types are not described.
        words, parser = import_module("re._constants"), import_module("re._parser")
        parsed = parser.parse(pattern)
    repeats: list[int] = []
    _walk(parsed, words, repeats, inside=False)
    return tuple(repeats)


def _walk(node: Any, words: Any, repeats: list[int], *, inside: bool) -> None:
    for operator, given in node:
        if operator in (words.MAX_REPEAT, words.MIN_REPEAT, words.POSSESSIVE_REPEAT):
            _walk_repeat(given, words, repeats, inside=inside)
        elif operator is words.SUBPATTERN:
            _walk(given[-1], words, repeats, inside=inside)
        elif operator is words.ATOMIC_GROUP:
            _walk(given, words, repeats, inside=inside)
        elif operator is words.BRANCH:
            if inside:
                raise ValueError("a choice within a repeat can take for ever")
            repeats.append(len(given[1]))
            for branch in given[1]:
                _walk(branch, words, repeats, inside=inside)
        elif operator in (words.ASSERT, words.ASSERT_NOT, words.GROUPREF, words.GROUPREF_EXISTS):
            raise ValueError("back references and looking around are not possible")


def _walk_repeat(given: Any, words: Any, repeats: list[int], *, inside: bool) -> None:
    least, most, body = given
    many = most > 1
    if many and inside:
        raise ValueError("a repeat within a repeat can take for ever")
    if least < most == 1 and inside:
        raise ValueError("a choice within a repeat can take for ever")
    if many or least < most:
        # What may be there or not is a choice of two.
        repeats.append(max(2, int(most)))
    _walk(body, words, repeats, inside=inside or many)


def tries_of(pattern: str, text: str) -> int:
    """How many characters a search can look at, at most about."""
    size = len(text) + 1
    tries = 1 if pattern.startswith("^") else size
    for most in repeats_of(pattern):
        tries *= min(most, size)
    return max(tries, size)


class _Steps(threading.local):
    """What is left for the check that this thread makes."""

    left = 0

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise TooCostly


_steps = _Steps()


def _counted(name: str, keyword: Any) -> Any:
    """The same keyword, which takes steps for each use, and for what its patterns may try."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _steps.take(1 + len(value) // ENTRIES_PER_STEP if name == "enum" else 1)
        if isinstance(instance, str) and isinstance(value, str) and schema.get("pattern") == value:
            _steps.take(tries_of(value, instance) // TRIES_PER_STEP)
        elif isinstance(instance, dict) and "patternProperties" in schema:
            for pattern in schema["patternProperties"]:
                tries = sum(tries_of(pattern, field) for field in instance)
                _steps.take(tries // TRIES_PER_STEP)
        elif isinstance(instance, list) and "uniqueItems" in schema:
            _steps.take(len(instance) ** 2 // TRIES_PER_STEP)
        return keyword(validator, value, instance, schema)

    return check


@lru_cache(maxsize=1)
def _validator_class() -> Any:
    from jsonschema import Draft202012Validator, validators

    known = Draft202012Validator.VALIDATORS.items()
    extend: Any = validators.extend
    return extend(Draft202012Validator, {name: _counted(name, keyword) for name, keyword in known})


def _validator(schema: Mapping[str, Any]) -> Any:
    from referencing import Registry

    # An empty registry fetches nothing, whatever a schema of an older release refers to.
    return _validator_class()(schema, registry=Registry())


def mistakes_in(schema: Mapping[str, Any], document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A JSON pointer and a sentence for each, without the values, which others may read."""
    # Late: a command that checks no input need not import it.
    from referencing.exceptions import Unresolvable

    _steps.left = STEPS_MAX
    found: list[tuple[str, str]] = []
    try:
        for error in _validator(schema).iter_errors(document):
            found.append((_pointer(error.absolute_path), _sentence(error)))
            if len(found) == MISTAKES_MAX:
                break
    except (TooCostly, RecursionError):
        found.append(("", f"to check it takes more than {STEPS_MAX} steps"))
    except (ValueError, Unresolvable):
        # Stored before a rule of today: what cannot be checked safely is refused, not guessed.
        found.append(("", "the schema of the pipeline must be corrected and applied again"))
    return found


def _pointer(path: Iterable[Any]) -> str:
    parts = (str(part).replace("~", "~0").replace("/", "~1")[:100] for part in path)
    return "".join(f"/{part}" for part in parts)


def _sentence(error: Any) -> str:
    keyword, value = error.validator, error.validator_value
    match keyword:
        case "required":
            missing = [name for name in value if name not in error.instance]
            return f"lacks {', '.join(missing)[:200]}"
        case "type":
            kinds = value if isinstance(value, list) else [value]
            return f"must be {' or '.join(map(str, kinds))}"
        case "additionalProperties" | "unevaluatedProperties":
            unknown = sorted(set(error.instance) - set(error.schema.get("properties", ())))
            return f"has fields that are not known: {', '.join(unknown)[:200]}"
        case "enum" | "const":
            return f"must be {json.dumps(value, ensure_ascii=False)[:200]}"
        case None:
            return "is not allowed"
        case _:
            text = json.dumps(value, ensure_ascii=False)
            return (
                f"does not fit {keyword} {text}" if len(text) < 100 else f"does not fit {keyword}"
            )


def check_input(schema: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    """Raise InputInvalid with the place of each mistake."""
    found = mistakes_in(schema, document)
    if found:
        mistakes = [(f"/input{place}", sentence) for place, sentence in found]
        place, sentence = mistakes[0]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise InputInvalid(f"input{found[0][0]} {sentence}{more}", place, mistakes)
