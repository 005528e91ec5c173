"""util/mandatory-fields and util/map-fields."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from datp_tasks.engine.builtin.field_types import TYPES
from datp_tasks.engine.builtin.mandatory_fields import mandatory_fields
from datp_tasks.engine.builtin.map_fields import map_fields
from datp_tasks.model.outcome import Fail
from tests.engine.builtin_context import mistakes, run

AMOUNT3 = {"currency": "PHP", "unscaledAmount": 1250, "scale": 2}
GOOD: dict[str, list[Any]] = {
    "string": ["", "x"],
    "integer": [0, -5, 10**30],
    "number": [0, 1.5],
    "amount": [0, -5, "12.50", "-0.01", "7"],
    "amount3": [AMOUNT3, AMOUNT3 | {"unscaledAmount": "1250"}],
    "boolean": [True, False],
    "date": ["2024-02-29"],
    "time": ["23:59", "23:59:59", "00:00:00.123"],
    "timestamp": ["2026-01-31T12:00:00Z", "2026-01-31T12:00+08:00", "2026-01-31T12:00:00.5-05:00"],
    "object": [{}, {"a": 1}],
    "list": [[], [1]],
}
BAD: dict[str, list[Any]] = {
    "string": [5, True, {}],
    "integer": [1.0, "5", True],
    "number": ["5", True],
    "amount": [1.5, 12.0, True, "1e5", "1,5", ".5", "5.", "", " 5", "٣"],
    "amount3": [
        5,
        {},
        AMOUNT3 | {"scale": -1},
        AMOUNT3 | {"scale": True},
        AMOUNT3 | {"unscaledAmount": 1.5},
        AMOUNT3 | {"currency": "php"},
        AMOUNT3 | {"more": 1},
    ],
    "boolean": [0, 1, "true"],
    "date": ["2023-02-29", "20240229", "2024-2-9", "2024-02-29T00:00", 20240229],
    "time": ["24:00", "12", "12:60", "12:00Z"],
    "timestamp": ["2026-01-31T12:00:00", "2026-01-31 12:00:00Z", "2026-13-01T12:00:00Z", 5],
    "object": [[], "{}"],
    "list": [{}, "[]"],
}


def check(data: dict[str, Any], fields: dict[str, Any], **params: Any) -> Any:
    return run(mandatory_fields, data, fields=fields, **params)


def test_every_type_is_tested_here() -> None:
    assert set(GOOD) == set(BAD) == set(TYPES)


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, values in GOOD.items() for v in values])
def test_values_of_the_type_pass(name: str, value: Any) -> None:
    assert check({"f": value}, {"f": {"type": name}}) is None


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, values in BAD.items() for v in values])
def test_values_of_another_type_fail(name: str, value: Any) -> None:
    with pytest.raises(Fail, match=r"^f must be "):
        check({"f": value}, {"f": {"type": name}})


def test_the_note_names_every_wrong_field() -> None:
    fields = {
        "amount": {"type": "amount"},
        "payee.country": {"values": ["PH", 1]},
        "payee.id": {},
        "remark": {"type": "string", "optional": True},
    }
    with pytest.raises(Fail) as failed:
        check({"amount": 1.5, "payee": {"country": True}}, fields, errorsAsOutput=True)
    assert failed.value.note == (
        'amount must be a decimal text such as "12.50" or a whole number, was 1.5; '
        "payee.country must be one of 'PH', 1, was True; payee.id is missing"
    )
    assert failed.value.output is not None
    assert failed.value.output["errorCount"] == 3
    assert failed.value.output["errors"][2] == {"field": "payee.id", "error": "is missing"}


def test_without_errors_as_output_there_is_only_the_note() -> None:
    with pytest.raises(Fail) as failed:
        check({}, {"a": {}})
    assert (failed.value.note, failed.value.output) == ("a is missing", None)


def test_null_counts_as_missing() -> None:
    assert check({"a": None}, {"a": {"type": "string", "optional": True}}) is None
    with pytest.raises(Fail, match="a is missing"):
        check({"a": None}, {"a": {}})


def test_unknown_fields_are_ignored_logged_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    data = {"a": {"b": 1, "x": 2}, "o": {"any": {"thing": 1}}, "y": 3}
    fields = {"a.b": {"type": "integer"}, "o": {"type": "object"}}
    assert check(data, fields) is None
    with caplog.at_level(logging.WARNING):
        assert check(data, fields, unknownFields="warning") is None
    assert caplog.messages == ["unknown fields: a.x, y"]
    with pytest.raises(Fail, match=r"^a\.x is not a known field; y is not a known field$"):
        check(data, fields, unknownFields="error")


def test_many_errors_do_not_make_an_endless_note() -> None:
    fields: dict[str, Any] = {f"f{number}": {} for number in range(200)}
    with pytest.raises(Fail, match=r"and 150 more$") as failed:
        check({}, fields, errorsAsOutput=True)
    assert failed.value.output is not None
    assert (len(failed.value.output["errors"]), failed.value.output["errorCount"]) == (50, 200)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"fields": {}},
        {"fields": []},
        {"fields": {"a": "string"}},
        {"fields": {"a": {"type": "float"}}},
        {"fields": {"a": {"typ": "string"}}},
        {"fields": {"a": {"values": []}}},
        {"fields": {"a": {"optional": "no"}}},
        {"fields": {"a..b": {}}},
        {"fields": {"a": {}}, "unknownFields": "refuse"},
    ],
)
def test_mistakes_of_mandatory_fields_are_named(params: dict[str, Any]) -> None:
    assert len(mistakes(mandatory_fields, **params)) >= 1


def test_fields_are_copied_set_and_composed() -> None:
    data = {"user": {"number": 7, "tags": ["x"]}, "a": {"name": "Ann"}, "other": 1}
    fields = {
        "customer.id": "user.number",
        "customer.tags": "user.tags",
        "kind": {"literal": {"is": ["transfer"]}},
        "lang": {"from": "user.lang", "default": "en"},
        "none": {"from": "user.lang", "default": None},
        "title": {"template": "From {{a.name}} ({{user.number}})"},
    }
    mapped = {
        "customer": {"id": 7, "tags": ["x"]},
        "kind": {"is": ["transfer"]},
        "lang": "en",
        "none": None,
        "title": "From Ann (7)",
    }
    assert run(map_fields, data, fields=fields) == mapped
    assert run(map_fields, data, fields=fields, keep=True) == {**data, **mapped}


def test_the_input_and_the_definition_are_not_touched() -> None:
    data, literal = {"a": {"b": 1}}, {"x": {"y": 1}}
    fields = {"a.c": {"literal": 2}, "copy": "a", "l": {"literal": literal}}
    output = run(map_fields, data, fields=fields, keep=True)
    output["copy"]["b"] = output["l"]["x"]["y"] = 99
    assert (data, literal) == ({"a": {"b": 1}}, {"x": {"y": 1}})


def test_every_field_that_cannot_be_mapped_is_named() -> None:
    fields = {"x": "gone", "y": {"template": "{{lost}}"}, "a.b": {"literal": 1}}
    with pytest.raises(Fail) as failed:
        run(map_fields, {"a": 5}, fields=fields, keep=True)
    assert failed.value.note == (
        "x: the data has no field gone; y: the data has no field lost; "
        "a.b: a.b cannot be set: a is not an object"
    )


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"fields": {}},
        {"fields": {"a": 5}},
        {"fields": {"a": {}}},
        {"fields": {"a": {"literal": 1, "from": "b"}}},
        {"fields": {"a": {"default": 1}}},
        {"fields": {"a": {"from": "x."}}},
        {"fields": {"a": {"template": 5}}},
        {"fields": {"a": {"template": "{{x..y}}"}}},
        {"fields": {"a.": "b"}},
        {"fields": {"a": "x", "a.b": "y"}},
        {"fields": {"a": "x"}, "keep": "yes"},
    ],
)
def test_mistakes_of_map_fields_are_named(params: dict[str, Any]) -> None:
    assert len(mistakes(map_fields, **params)) >= 1
