"""Mappings: how the fields of one object are made from those of another.

A source is a path, or an object: `{literal: …}`, `{template: …}`, or `{from: path, default: …}`
with at most one conversion (model/conversions.py). Pipelines share mappings by name: the store
writes the version in use into the definition, so a transaction keeps the one it started with.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from datp_tasks.errors import PipelineInvalid
from datp_tasks.model import payload
from datp_tasks.model.conversions import CONVERSIONS, OPTIONS, ConversionError, converted
from datp_tasks.model.conversions import mistakes_of as conversion_mistakes
from datp_tasks.model.paths import (
    MISSING,
    FieldMissing,
    PathBlocked,
    lookup,
    path_mistake,
    put,
    render,
    template_mistakes,
)

MAPPING_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}")
#: Below the limit of a step's params, into which it is written.
MAPPING_BYTES_MAX = 49_152
DEPTH_MAX = 16
DESCRIPTION_CHARS_MAX = 4_000
#: The step type that takes a mapping by its name.
STEP_TYPE = "util/map-fields"
#: What a mapping says, beside its name and description.
CONTENT = ("fields", "codes", "keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingDefinition:
    """One version of a mapping, known by the hash of its content."""

    name: str
    description: str = ""
    fields: Mapping[str, Any] = field(hash=False)
    codes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    keep: bool = False

    def content(self) -> dict[str, Any]:
        """What a step or a reply needs of it; what is as by default is left out."""
        found: dict[str, Any] = {"fields": copy.deepcopy(dict(self.fields))}
        if self.codes:
            found["codes"] = copy.deepcopy(dict(self.codes))
        return found | ({"keep": True} if self.keep else {})

    def to_mapping(self) -> dict[str, Any]:
        """As a file would have it."""
        head = {"mapping": self.name}
        if self.description:
            head["description"] = self.description
        return head | self.content()

    def to_json(self) -> str:
        """The canonical JSON, which the content hash is taken of."""
        return payload.canonical(self.to_mapping())

    @classmethod
    def from_mapping(cls, clean: Mapping[str, Any]) -> Self:
        """From one that was checked before."""
        return cls(
            name=clean["mapping"],
            description=clean.get("description", ""),
            fields=clean["fields"],
            codes=clean.get("codes", {}),
            keep=clean.get("keep", False),
        )


def parse_mapping(raw: object, *, source: str) -> MappingDefinition:
    """What a user wrote, or PipelineInvalid with every mistake in it."""
    if not isinstance(raw, Mapping):
        raise PipelineInvalid([f"{source}: must be an object with the key mapping"])
    given = {key: value for key, value in raw.items() if value is not None}
    mistakes = [
        f"{key}: is not a known key; known are mapping, description, {', '.join(CONTENT)}"
        for key in given
        if key not in ("mapping", "description", *CONTENT)
    ]
    name, description = given.get("mapping"), given.get("description", "")
    if not isinstance(name, str) or not MAPPING_NAME.fullmatch(name):
        mistakes.append(f"mapping: must match {MAPPING_NAME.pattern}, was {name!r:.100}")
    if not isinstance(description, str) or len(description) > DESCRIPTION_CHARS_MAX:
        mistakes.append(f"description: must be a text of up to {DESCRIPTION_CHARS_MAX} characters")
    mistakes += content_mistakes(given)
    limits = {"bytes_max": MAPPING_BYTES_MAX, "depth_max": DEPTH_MAX}
    try:
        clean, _ = payload.checked(dict(given), what="the mapping", **limits)
    except payload.NotJson as error:
        raise PipelineInvalid([f"{source}: {each}" for each in (*mistakes, str(error))]) from None
    if mistakes:
        raise PipelineInvalid([f"{source}: {each}" for each in mistakes])
    return MappingDefinition.from_mapping(clean)


def content_mistakes(content: Mapping[str, Any]) -> list[str]:
    """Every mistake in fields, codes and keep, each with its place."""
    mistakes = []
    if not isinstance(content.get("keep", False), bool):
        mistakes.append(f"keep must be true or false, was {content['keep']!r}")
    codes = content.get("codes", {})
    mistakes += _code_mistakes(codes)
    fields = content.get("fields")
    if not fields:
        mistakes.append("fields must be given: an object of target path to source")
    if not isinstance(fields, Mapping):
        return mistakes + ([f"fields must be an object, was {fields!r}"] if fields else [])
    known = codes if isinstance(codes, Mapping) else {}
    for target, source in fields.items():
        mistake = path_mistake(target, f"fields: the target {target!r}")
        mistakes += [mistake] if mistake else []
        mistakes += _source_mistakes(source, f"fields.{target}", known)
    return mistakes + [
        f"fields: {outer} and {inner} cannot both be set"
        for outer in fields
        for inner in fields
        if str(inner).startswith(f"{outer}.")
    ]


def apply_mapping(
    content: Mapping[str, Any], data: Mapping[str, Any], *, quotes: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """The new object, and why some fields could not be made; those are left out of it.

    Without `quotes` no value of the data is told.
    """
    output: dict[str, Any] = copy.deepcopy(dict(data)) if content.get("keep") else {}
    problems = []
    for target, source in content["fields"].items():
        try:
            value = _value(source, data, content.get("codes", {}))
            put(output, target, copy.deepcopy(value))
        except (FieldMissing, PathBlocked) as problem:
            problems.append(f"{target}: {problem}")
        except ConversionError as problem:
            problems.append(f"{target}: {problem if quotes else 'its value does not fit'}")
    return output, problems


def _value(source: Any, data: Mapping[str, Any], codes: Mapping[str, Any]) -> Any:
    if isinstance(source, str):
        source = {"from": source}
    if "literal" in source:
        return source["literal"]
    if "template" in source:
        return render(source["template"], data)
    value = lookup(data, source["from"])
    if value is MISSING:
        if "default" in source:
            return source["default"]
        raise FieldMissing(source["from"])
    return converted(value, source, data, codes)


def _source_mistakes(source: object, where: str, codes: Mapping[str, Any]) -> list[str]:
    if isinstance(source, str):
        source = {"from": source}
    if not isinstance(source, Mapping) or not _is_known_form(set(source)):
        return [
            f"{where} must be a path, {{literal: …}}, {{template: text}} or {{from: path}} with "
            f"default, {', '.join(CONVERSIONS)}, was {source!r:.200}"
        ]
    if "template" in source:
        if not isinstance(source["template"], str):
            return [f"{where}.template must be text, was {source['template']!r}"]
        return template_mistakes(source["template"], f"{where}.template")
    if "literal" in source:
        return []
    mistake = path_mistake(source["from"], where)
    found = [mistake] if mistake else []
    return found + [f"{where}.{each}" for each in conversion_mistakes(source, codes)]


def _is_known_form(keys: set[Any]) -> bool:
    if keys in ({"literal"}, {"template"}):
        return True
    return "from" in keys and keys <= {"from", "default", *CONVERSIONS, *OPTIONS}


def _code_mistakes(codes: object) -> list[str]:
    if not isinstance(codes, Mapping):
        return [f"codes must be an object of tables, was {codes!r}"]
    return list(_table_mistakes(codes))


def _table_mistakes(codes: Mapping[Any, Any]) -> Iterator[str]:
    for name, table in codes.items():
        if not isinstance(table, Mapping) or not table:
            yield f"codes.{name} must be an object of code to code"
            continue
        for code, other in table.items():
            if not isinstance(code, str) or not isinstance(other, str | int | bool):
                yield f"codes.{name}: {code!r} to {other!r} is no pair of codes"
