"""The types for TypeScript are those of the API as it is."""

from __future__ import annotations

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
