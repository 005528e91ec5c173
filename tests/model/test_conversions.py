"""Mappings: dates, amounts without floats, codes; and every mistake in one is named."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks.errors import PipelineInvalid
from datp_tasks.model.mapping import apply_mapping, parse_mapping

CODES = {"countries": {"AU": "036", "PH": "608"}}


def made(source: Any, **data: Any) -> Any:
    """The value of one field, or the problem with it."""
    mapping = parse_mapping({"mapping": "m", "fields": {"x": source}, "codes": CODES}, source="m")
    output, problems = apply_mapping(mapping.content(), data)
    return output["x"] if not problems else problems[0]


MINOR = {"from": "a", "amount": "minor", "scale": 2}
DECIMAL = {"from": "a", "amount": "decimal", "scale": 2}


@pytest.mark.parametrize(
    ("source", "value", "expected"),
    [
        (MINOR, "12.50", 1250),
        (MINOR, "12.5", 1250),
        (MINOR, 12, 1200),
        (MINOR, "-0.05", -5),
        (MINOR, "1.500", 150),
        # More than a float holds: no digit may change.
        (MINOR, "90071992547409931234.57", 9007199254740993123457),
        (DECIMAL, 1250, "12.50"),
        (DECIMAL, -5, "-0.05"),
        (DECIMAL, 0, "0.00"),
        (DECIMAL, "7", "0.07"),
        (DECIMAL, 9007199254740993123457, "90071992547409931234.57"),
        ({"from": "a", "date": {"from": "YYYY-MM-DD", "to": "MM-DD-YYYY"}}, "2024-02-29",
         "02-29-2024"),
        ({"from": "a", "date": {"from": "YYYY-MM-DDThh:mm:ssZ", "to": "epoch"}},
         "2024-02-29T01:02:03Z", 1709168523),
        ({"from": "a", "date": {"from": "epoch-ms", "to": "YYYYMMDDhhmmss"}}, 1709168523999,
         "20240229010203"),
        ({"from": "a", "date": {"from": "YYYY-MM-DD", "to": "DD.MM.YYYY"}}, "0099-01-02",
         "02.01.0099"),
        ({"from": "a", "code": "countries"}, "PH", "608"),
        ({"from": "a", "code": "countries", "reverse": True}, "036", "AU"),
        ({"from": "a", "code": "countries", "default": "000"}, "XX", "000"),
        ({"from": "b", "code": "countries", "default": "000"}, "PH", "000"),
    ],
)  # fmt: skip
def test_a_value_is_converted(source: Any, value: Any, expected: Any) -> None:
    found = made(source, a=value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("source", "value", "problem"),
    [
        (MINOR, "12.505", "more than 2 digits"),
        (MINOR, 12.5, "no amount"),
        (MINOR, True, "no amount"),
        (MINOR, "1e5", "no amount"),
        (DECIMAL, "12.5", "no whole number"),
        (DECIMAL, 1.0, "no whole number"),
        ({"from": "a", "date": {"from": "YYYY-MM-DD", "to": "epoch"}}, "2023-02-29", "not a date"),
        ({"from": "a", "date": {"from": "YYYY-MM-DD", "to": "epoch"}}, "2024-2-009", "not a date"),
        ({"from": "a", "date": {"from": "epoch", "to": "YYYY"}}, 10**30, "out of range"),
        ({"from": "a", "code": "countries"}, "XX", "not in the table countries"),
        ({"from": "a", "code": "countries"}, {}, "not in the table countries"),
        ({"from": "a", "amount": "minor", "currency": "c"}, "1", "no field c"),
    ],
)
def test_what_does_not_fit_is_never_rounded(source: Any, value: Any, problem: str) -> None:
    assert problem in made(source, a=value)


@pytest.mark.parametrize(("currency", "minor"), [("JPY", 7), ("EUR", 700), ("KWD", 7000)])
def test_a_currency_has_its_own_number_of_digits(currency: str, minor: int) -> None:
    source = {"from": "a", "amount": "minor", "currency": "c"}
    assert made(source, a="7", c=currency) == minor


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"mapping": "No"}, "mapping: must match"),
        ({"more": 1}, "more: is not a known key"),
        ({"fields": {}}, "fields must be given"),
        ({"fields": {"a..b": "x"}}, "dotted path"),
        ({"fields": {"a": "x", "a.b": "y"}}, "cannot both be set"),
        ({"fields": {"a": {"from": "x", "amount": "minor"}}}, "needs scale"),
        ({"fields": {"a": {"from": "x", "amount": "cents", "scale": 2}}}, "minor or decimal"),
        ({"fields": {"a": {"from": "x", "amount": "minor", "scale": 2.5}}}, "scale must be"),
        ({"fields": {"a": {"from": "x", "scale": 2}}}, "only used together with amount"),
        ({"fields": {"a": {"from": "x", "code": "none"}}}, "must name a table"),
        ({"fields": {"a": {"from": "x", "date": {"from": "YY", "to": "epoch"}}}}, "date.from"),
        ({"fields": {"a": {"from": "x", "date": "iso"}}}, "date must be"),
        (
            {"fields": {"a": {"from": "x", "code": "t", "reverse": True}},
             "codes": {"t": {"a": "1", "b": "1"}}},
            "a code twice",
        ),
        ({"codes": {"t": {}}}, "codes.t must be an object"),
        ({"codes": {"t": {"a": 1.5}}}, "no pair of codes"),
        ({"keep": "yes"}, "keep must be true or false"),
        ({"fields": {"a": {"literal": "x" * 60_000}}}, "49152 are allowed"),
    ],
)  # fmt: skip
def test_every_mistake_in_a_mapping_is_named(changes: dict[str, Any], mistake: str) -> None:
    raw = {"mapping": "m", "fields": {"a": "x"}} | changes
    with pytest.raises(PipelineInvalid) as refused:
        parse_mapping(raw, source="m.yaml")
    assert any(mistake in each for each in refused.value.mistakes), refused.value.mistakes
