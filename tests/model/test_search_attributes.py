"""Search attributes: the order of the texts is that of the values."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp_tasks import Pipeline
from datp_tasks.errors import FilterInvalid, PipelineInvalid
from datp_tasks.model.search_attributes import SearchCondition, text_of


def key(kind: str, value: object) -> str:
    found = text_of(kind, value)
    assert found is not None, value
    return found


def test_numbers_are_in_order() -> None:
    numbers = ["-1e3", "-200", "-20.5", "-20", "-2", "-0.5", "-0.05", "0", "1e-9", "0.05", "1"]
    numbers += ["1.05", "1.5", "2", "19", "20", "100.01", "9e30"]
    keys = [key("decimal", each) for each in numbers]
    assert all(one < other for one, other in pairwise(keys))
    assert key("decimal", 20) == key("decimal", "20.00") == key("decimal", 20.0)


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**15)),
    st.decimals(allow_nan=False, allow_infinity=False, places=6, max_value=10**15),
)
def test_any_two_numbers_are_in_order(one: Decimal, other: Decimal) -> None:
    a, b = text_of("decimal", one), text_of("decimal", other)
    if a and b:
        assert (a < b) == (one < other) and (a == b) == (one == other)


def test_times_are_in_order_whatever_their_zone() -> None:
    early, late = key("time", "2026-01-01T12:00:00+02:00"), key("time", "2026-01-01T10:30:00Z")
    assert early < late
    assert text_of("time", "2026-01-01T12:00:00") is None


@pytest.mark.parametrize(
    ("text", "fits", "fits_not"),
    [
        ("amount>=100", ["100", "100.01"], ["99.99", "-100"]),
        ("amount>100", ["100.01"], ["100"]),
        ("amount<100", ["99", "-5"], ["100", "1e3"]),
        ("amount<=100", ["100"], ["100.1"]),
        ("amount=100", ["100.0"], ["10", "1000"]),
    ],
)
def test_a_condition_is_a_range(text: str, fits: list[str], fits_not: list[str]) -> None:
    ranges = SearchCondition.from_text(text).ranges

    def is_in(value: str) -> bool:
        return any(low <= key("decimal", value) < high for low, high in ranges)

    assert [is_in(each) for each in fits] == [True] * len(fits)
    assert [is_in(each) for each in fits_not] == [False] * len(fits_not)


@pytest.mark.parametrize("text", ["amount", "Amount=1", "a b=1", "=1"])
def test_a_strange_condition_is_refused(text: str) -> None:
    with pytest.raises(FilterInvalid):
        SearchCondition.from_text(text)


@pytest.mark.parametrize(
    "search",
    [
        {"a b": {"from": "input.a", "type": "string"}},
        {"a": {"from": "metadata.a", "type": "string"}},
        {"a": {"from": "input.a", "type": "money"}},
        {"a": {"from": "input.a"}},
        {f"a{n}": {"from": "input.a", "type": "string"} for n in range(17)},
        ["a"],
    ],
)
def test_a_pipeline_with_strange_attributes_is_refused(search: object) -> None:
    with pytest.raises(PipelineInvalid, match="search"):
        Pipeline("p", search=search).step("util/delay").build()  # type: ignore[arg-type]


def test_a_sealed_pipeline_has_none() -> None:
    attribute = {"from": "input.a", "type": "string"}
    with pytest.raises(PipelineInvalid, match="sealed"):
        Pipeline("p", sealed=True, search={"a": attribute}).step("util/delay").build()
