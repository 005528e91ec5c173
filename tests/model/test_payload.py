"""JSON that may come in: everything else is refused, with where and why."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datp_tasks.model.payload import (
    InexactNumber,
    NotJson,
    canonical,
    checked,
    decode,
    encode,
    parse,
)

#: A busy machine must not make a test fail.
CAREFREE: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
}

NUL = "\x00"
HALF = "\ud800"


def check(value: object, *, bytes_max: int = 10_000, depth_max: int = 8) -> dict[str, Any]:
    return checked(value, what="data", bytes_max=bytes_max, depth_max=depth_max)[0]


def refusal(value: object, **limits: int) -> str:
    with pytest.raises(NotJson) as refused:
        check(value, **limits)
    return str(refused.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "data must be a JSON object, was null"),
        ([], "data must be a JSON object, was a list"),
        ("{}", "data must be a JSON object, was a string"),
        (True, "data must be a JSON object, was a boolean"),
        (5, "data must be a JSON object, was a Python int"),
        ({"a": [1, math.nan]}, "data.a[1] is nan, which JSON does not have"),
        ({"a": math.inf}, "data.a is inf, which JSON does not have"),
        ({"a": -math.inf}, "data.a is -inf, which JSON does not have"),
        ({"a": {"b": f"x{NUL}"}}, "data.a.b holds the character U+0000, which cannot be stored"),
        ({NUL: 1}, "data holds the character U+0000, which cannot be stored"),
        ({"a": HALF}, "data.a holds half of a surrogate pair"),
        ({HALF: 1}, "data holds half of a surrogate pair"),
        ({1: "a"}, "data has the key 1; keys must be strings"),
        ({None: "a"}, "data has the key None; keys must be strings"),
        (
            {"price": Decimal("1.10")},
            "data.price is a Python Decimal, which JSON does not have; "
            "send money as a string or as a whole number of minor units",
        ),
        ({"a": {1, 2}}, "data.a is a Python set, which JSON does not have"),
        ({"a": b"x"}, "data.a is a Python bytes, which JSON does not have"),
    ],
)
def test_what_json_would_quietly_change_is_refused(value: object, message: str) -> None:
    assert refusal(value) == message


def test_depth_is_counted_in_objects_and_lists() -> None:
    three: dict[str, Any] = {"a": {"b": [1]}}
    assert check(three, depth_max=3) == three
    assert refusal({"a": {"b": [[]]}}, depth_max=3) == "data.a.b[0] is nested too deeply"
    endless: dict[str, Any] = {}
    endless["again"] = endless
    assert refusal(endless, depth_max=32).endswith("is nested too deeply")


def test_size_is_counted_in_bytes_not_characters() -> None:
    euro = {"a": "€" * 100}
    size = len(encode(euro).encode())
    assert size > len(encode(euro))
    assert check(euro, bytes_max=size) == euro
    assert refusal(euro, bytes_max=size - 1) == (
        f"data is {size} bytes of JSON; {size - 1} are allowed"
    )


def test_tuples_become_lists_and_the_copy_is_independent() -> None:
    inner = [1]
    given_value = {"t": (1, (2,)), "inner": inner}
    copy = check(given_value)
    assert copy == {"t": [1, [2]], "inner": [1]}
    inner.append(2)
    assert copy["inner"] == [1]


def test_huge_numbers_stay_as_they_are() -> None:
    value = {"n": 2**64 + 1, "m": -(10**300), "f": 0.1 + 0.2, "tiny": 5e-324}
    copy, text = checked(value, what="data", bytes_max=10_000, depth_max=2)
    assert json.loads(text) == copy == value


def test_a_number_with_more_digits_than_python_prints_is_refused() -> None:
    assert refusal({"n": 10**5_000}).startswith("data ")


def test_text_from_outside_with_a_key_twice_or_constants_is_refused() -> None:
    for text, message in (
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "body: the key 'c' appears twice"),
        ('{"a": NaN}', "body: NaN is not JSON"),
        ('{"a": -Infinity}', "body: -Infinity is not JSON"),
        ("[" * 200_000, "body is nested too deeply"),
        ("{", "body is not JSON: Expecting property name"),
    ):
        with pytest.raises(NotJson) as refused:
            parse(text, what="body", bytes_max=1_000_000)
        assert str(refused.value).startswith(message)


def test_text_from_outside_that_is_too_long_is_not_even_read() -> None:
    with pytest.raises(NotJson, match="body is 11 bytes; 10 are allowed"):
        parse("x" * 11, what="body", bytes_max=10)


def test_a_number_that_overflows_does_not_get_through_as_infinity() -> None:
    with pytest.raises(NotJson):
        check(parse('{"a": 1e999}', what="body", bytes_max=100))


def test_a_number_that_a_float_would_change_is_refused_with_its_place() -> None:
    for number in ("12345678901234567.89", "0.1000000000000000000001", "1e999", "-1e-999"):
        with pytest.raises(NotJson) as refused:
            parse(f'{{"a/b": [0.5, {{"c": {number}}}]}}', what="body", bytes_max=1_000)
        assert refused.value.pointer == "/a~1b/1/c"
        assert str(refused.value).startswith(f"body.a/b[1].c is {number}, which would be stored as")
    kept = parse('{"c": 1e999}', what="body", bytes_max=100, keep_inexact=True)
    assert isinstance(kept["c"], InexactNumber)
    with pytest.raises(NotJson) as refused:
        check(kept)
    assert refused.value.pointer == "/data/c"
    same = '{"a": 0.10, "b": 1E2, "c": -0.0, "d": 5e-324, "e": 0.30000000000000004}'
    assert parse(same, what="body", bytes_max=1_000) == json.loads(same)


def took_s(work: Callable[[], object]) -> float:
    """The best of three, which a busy machine disturbs least."""
    times = []
    for _ in range(3):
        began_s = time.process_time()
        work()
        times.append(time.process_time() - began_s)
    return min(times)


def doubled(count: int) -> str:
    keys = ",".join(f'"k{n}":1' for n in range(count))
    return f'{{{keys},"k{count - 1}":2}}'


def refused_by(text: str) -> None:
    with pytest.raises(NotJson):
        parse(text, what="body", bytes_max=10**7)


def test_eight_times_the_keys_cost_about_eight_times_the_time() -> None:
    """Sixty-four times, if it grew with the square."""
    few, many = doubled(2_000), doubled(16_000)
    assert took_s(lambda: refused_by(many)) < 24 * took_s(lambda: refused_by(few)) + 0.02


def test_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical({"b": 1, "a": [True, None]}) == canonical({"a": [True, None], "b": 1})
    assert canonical({"b": 1, "a": "é"}) == '{"a":"é","b":1}'


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=NUL), max_size=20)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Equal, with 1, 1.0 and True taken for different values."""
    return type(one) is type(other) and repr(one) == repr(other)


@settings(**CAREFREE)
@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_checked_json_comes_back_exactly_as_it_went_in(value: dict[str, Any]) -> None:
    copy, text = checked(value, what="data", bytes_max=10**7, depth_max=64)
    assert same(copy, value)
    assert text == encode(value)
    assert same(parse(text, what="data", bytes_max=10**7), value)
    assert canonical(parse(canonical(value), what="data", bytes_max=10**7)) == canonical(value)


@pytest.mark.parametrize("text", ['{"a":1}', '{"a":[1.5,null,"ä"]}\n', '"text"', "[]"])
def test_json_of_our_own_is_read_as_any_other(text: str) -> None:
    assert decode(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", '{"a":1}}', '{"a":1} {"b":2}', '{"a":', "{'a':1}"])
def test_json_of_our_own_that_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)
