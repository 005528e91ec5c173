from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp_tasks.model.paths import (
    MISSING,
    FieldMissing,
    PathBlocked,
    fill,
    lookup,
    path_mistake,
    put,
    render,
    template_mistakes,
)

DATA = {"a": {"b": [10, {"c": None}]}, "0": "zero", "": "empty", "t": "x", "yes": True}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b.0", 10),
        ("a.b.1.c", None),
        ("0", "zero"),
        ("a.b.2", MISSING),
        ("a.b.-1", MISSING),
        ("a.b.²", MISSING),
        ("a.x", MISSING),
        ("t.0", MISSING),
        ("t.x", MISSING),
        ("a.b.1.c.d", MISSING),
    ],
)
def test_a_path_finds_fields_and_list_items(path: str, value: Any) -> None:
    assert lookup(DATA, path) is value or lookup(DATA, path) == value


@pytest.mark.parametrize(
    "path", ["", ".", "a.", ".a", "a..b", " a", "a ", 3, None, "a." * 40 + "b"]
)
def test_what_is_not_a_path_is_named(path: object) -> None:
    assert path_mistake(path, "field") is not None


def test_put_makes_the_objects_on_the_way() -> None:
    target: dict[str, Any] = {"a": {"x": 1}}
    put(target, "a.b.c", 2)
    assert target == {"a": {"x": 1, "b": {"c": 2}}}


def test_put_does_not_destroy_a_value_on_the_way() -> None:
    with pytest.raises(PathBlocked, match=r"a\.b\.c cannot be set: a is not an object"):
        put({"a": 5}, "a.b.c", 2)


def test_a_template_alone_keeps_the_type_of_the_field() -> None:
    filled = fill({"n": "{{a.b.0}}", "l": ["{{ yes }}"], "s": "n={{a.b.0}} {{yes}}!", "k": 5}, DATA)
    assert filled == {"n": 10, "l": [True], "s": "n=10 true!", "k": 5}


def test_objects_inside_a_text_are_json_and_null_is_nothing() -> None:
    assert render("{{a}} [{{a.b.1.c}}]", DATA) == '{"b":[10,{"c":null}]} []'


def test_a_missing_field_is_named_unless_there_is_a_default() -> None:
    with pytest.raises(FieldMissing, match=r"the data has no field a\.z"):
        fill({"x": ["{{a.z}}"]}, DATA)
    assert fill({"x": "{{a.z}}", "y": "-{{a.z}}-"}, DATA, default=None) == {"x": None, "y": "--"}


def test_inserted_values_are_not_templates_again() -> None:
    assert render("{{t}}", {"t": "{{secret}}", "secret": "s"}) == "{{secret}}"


def test_mistakes_in_templates_name_their_place() -> None:
    assert template_mistakes({"a": ["ok {{b.c}}", "{{}}"]}, "report") == [
        "report.a[1]: the placeholder {{}} must be a dotted path such as customer.id, was ''"
    ]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_what_is_put_at_a_path_is_found_there(value: Any) -> None:
    target: dict[str, Any] = {}
    put(target, "some.where.deep", value)
    assert lookup(target, "some.where.deep") == value
    assert fill("{{some.where.deep}}", target) == value
    text = render("{{some.where.deep}}", target)
    if not isinstance(value, str) and value is not None:
        assert json.loads(text) == value
