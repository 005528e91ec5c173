"""Names and values of switches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from datp_tasks.errors import InputInvalid, SwitchInvalid
from datp_tasks.model.switch import switch_json, typed_value


@pytest.mark.parametrize("value", [True, False, 0, -5, 1.5, 10**100, "", "yes", "ü" * 32])
def test_booleans_numbers_and_short_texts_are_kept(value: Any) -> None:
    text = switch_json("kyc", value)
    assert json.loads(text) == value
    assert type(json.loads(text)) is type(value)


def test_none_removes_the_switch() -> None:
    assert switch_json("kyc", None) == ""


@pytest.mark.parametrize("name", ["a", "A1", "kyc.step-2_b", "x" * 32])
def test_names_are_short_and_plain(name: str) -> None:
    assert switch_json(name, 1) == "1"


@pytest.mark.parametrize("name", ["", "x" * 33, "a b", "-a", "ä", "a:b", "a\n", None, 5])
def test_other_names_are_refused(name: Any) -> None:
    with pytest.raises(SwitchInvalid, match="a switch name is 1 to 32 letters"):
        switch_json(name, 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x" * 33, "switch kyc: a text has up to 32 characters, was 33"),
        ("a\x00", "switch kyc: the text holds a character that cannot be stored"),
        ("\ud800", "switch kyc: the text holds a character that cannot be stored"),
        ([1], "switch kyc: the value must be a boolean, a number or a text, was [1]"),
        ({}, "switch kyc: the value must be a boolean, a number or a text, was {}"),
        (float("nan"), "switch kyc: the value is not a number that JSON can carry"),
        (float("inf"), "switch kyc: the value is not a number that JSON can carry"),
        (10**300, "switch kyc: the number has too many digits"),
        pytest.param(
            10**5_000,
            "switch kyc: the value is not a number that JSON can carry",
            id="more digits than Python prints",
        ),
    ],
)
def test_other_values_are_refused_with_a_reason(value: Any, message: str) -> None:
    with pytest.raises(SwitchInvalid) as refused:
        switch_json("kyc", value)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("true", True), ("7", 7), ("1.5", 1.5), ('"7"', "7"), ("yes", "yes"), ("", "")),
        # What is no number of JSON, or no value of a switch, is the text that was typed.
        *(("NaN", "NaN"), ("null", "null"), ("[1]", "[1]"), ("[" * 5_000, "[" * 5_000)),
    ],
)
def test_what_a_person_types_is_read(text: str, value: object) -> None:
    found = typed_value(text)
    assert (type(found), found) == (type(value), value)


def test_a_typed_number_that_would_change_is_refused() -> None:
    with pytest.raises(InputInvalid, match="fewer digits"):
        typed_value("0.12345678901234567890123")
