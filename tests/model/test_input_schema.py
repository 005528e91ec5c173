"""Input schemas: what they find, and that nothing keeps a process busy."""

from __future__ import annotations

import time
from typing import Any

import pytest

from datp_tasks.model.input_schema import clean_schema, mistakes_in

PAYMENT = {
    "type": "object",
    "required": ["amount"],
    "properties": {
        "amount": {"type": "string", "pattern": r"^[0-9]{1,12}\.[0-9]{2}$"},
        "to": {"type": "array", "items": {"$ref": "#/$defs/name"}},
    },
    "additionalProperties": False,
    "$defs": {"name": {"type": "string", "minLength": 1}},
}


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({"amount": "1.00", "to": ["a"]}, []),
        ({}, [""]),
        ({"amount": 1}, ["/amount"]),
        ({"amount": "1.00", "to": ["a", "", 3]}, ["/to/1", "/to/2"]),
        ({"amount": "1", "more": 1}, ["", "/amount"]),
    ],
)
def test_each_mistake_has_its_place(document: dict[str, Any], places: list[str]) -> None:
    clean, mistakes = clean_schema(PAYMENT)
    assert (clean, mistakes) == (PAYMENT, [])
    assert sorted(place for place, _ in mistakes_in(clean, document)) == places


def test_values_are_not_repeated_in_the_mistakes() -> None:
    found = mistakes_in(PAYMENT, {"amount": "DE4711", "to": "DE4711"})
    assert len(found) == 2 and "DE4711" not in str(found)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/none"},
        {"$ref": "#name"},
        {"properties": {"a": {"$dynamicRef": "#x"}}},
        {"$id": "https://example.com/"},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"properties": {"a": {"pattern": "(a+)+$"}}},
        {"properties": {"a": {"pattern": "(a|a)*$"}}},
        {"properties": {"a": {"pattern": r"(a)\1"}}},
        {"properties": {"a": {"pattern": "(?=a)a"}}},
        {"patternProperties": {"(x*)*": {}}},
        # One character or two, as often as it takes: as many ways as Fibonacci numbers.
        {"properties": {"a": {"pattern": "^(aa?)*$"}}},
        # A property may be called as a keyword is; its schema is looked at all the same.
        {"properties": {"properties": {"$ref": "https://example.com/schema"}}},
        {"properties": {"a/properties": {"pattern": "(a+)+$"}}},
        {"$defs": {"$defs": {"properties": {"a": {"pattern": "(a+)+$"}}}}},
        # Values are not looked at, so that no reference may lead there.
        {"$ref": "#/default", "default": {"$ref": "https://example.com/schema"}},
        {"$ref": "#/%64efault", "%64efault": {}, "default": {"$ref": "https://example.com/"}},
        {"properties": {"pattern": {}, "a": {"$ref": "#/properties"}}},
        {"properties": {"a": {"pattern": "("}}},
        {"type": "array"},
        {"type": "strong"},
        {"required": "a"},
        "text",
        {"description": "x" * 70_000},
    ],
)
def test_a_schema_that_leads_elsewhere_or_can_take_for_ever_is_refused(schema: Any) -> None:
    assert clean_schema(schema)[1]


def test_names_of_fields_are_not_taken_for_keywords() -> None:
    schema = {"properties": {"$ref": {"type": "string"}, "pattern": {"type": "string"}}}
    assert clean_schema(schema)[1] == []


WIDE: dict[str, Any] = {str(n): {} for n in range(30_000)}
DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"$ref": "#"}, {}),
        ({"$ref": "#/$defs/d0", "$defs": {**DOUBLING, "d40": {}}}, {}),
        ({"properties": {"a": {"pattern": "a*a*a*a*b"}}}, {"a": "a" * 200_000}),
        ({"properties": {"a": {"pattern": "a?" * 40 + "a" * 40 + "$"}}}, {"a": "a" * 40 + "b"}),
        ({"properties": {"a": {"pattern": "(a|aa)" * 40 + "$"}}}, {"a": "a" * 60 + "b"}),
        (
            {"properties": {"a": {"items": {"enum": list(range(10_000))}}}},
            {"a": [9_999] * 40_000},
        ),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": n} for n in range(20_000)]}),
        ({"patternProperties": {"x*x*x*y": {}}}, {"x" * 5_000: 1}),
    ],
)
def test_no_schema_and_no_input_keeps_a_process_busy(
    schema: dict[str, Any], document: dict[str, Any]
) -> None:
    clean, mistakes = clean_schema(schema)
    assert mistakes == []
    began_s = time.process_time()
    found = mistakes_in(clean, document)
    assert time.process_time() - began_s < 3
    assert found and "steps" in found[-1][1]


@pytest.mark.parametrize(
    "part",
    [{"type": "string", "pattern": r"(\d-?)*"}, {"$ref": "http://127.0.0.1:9/elsewhere"}],
)
def test_a_stored_schema_that_is_not_allowed_any_more_refuses_and_does_not_break(
    part: dict[str, object],
) -> None:
    [(_, sentence)] = mistakes_in({"properties": {"a": part}}, {"a": "1"})
    assert "corrected and applied again" in sentence
