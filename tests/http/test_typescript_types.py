"""The types for TypeScript are those of the API as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.typescript_types import TARGET, document, type_of, types_of


def test_the_types_are_current() -> None:
    assert TARGET.read_text() == types_of(document()), "run `make clients`"


def test_a_schema_becomes_the_type_that_it_says() -> None:
    assert type_of({"type": "integer"}) == "number"
    assert type_of({"enum": ["a", "b"]}) == '"a" | "b"'
    assert type_of({"type": "array", "items": {"enum": ["a", "b"]}}) == '("a" | "b")[]'
    assert type_of({"anyOf": [{"$ref": "#/components/schemas/X"}, {"type": "null"}]}) == "X | null"
    assert type_of({"type": "object", "additionalProperties": {"type": "string"}}) == (
        "Record<string, string>"
    )
    assert type_of({"type": "object", "properties": {"a-b": {}}, "required": ["a-b"]}) == (
        '{\n  "a-b": unknown;\n}'
    )
    assert type_of({}) == "unknown"


def test_every_reference_of_the_document_leads_somewhere() -> None:
    spec = document()
    found = {each.removeprefix("#/") for each in references(spec)}
    assert found and [each for each in found if not leads(spec, each)] == []


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def leads(spec: Any, place: str) -> bool:
    for part in place.split("/"):
        if not isinstance(spec, dict) or part not in spec:
            return False
        spec = spec[part]
    return True
