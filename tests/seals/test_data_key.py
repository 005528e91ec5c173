"""Data keys: values come out as they went in, for their transaction only."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp_tasks.errors import SealBroken
from datp_tasks.model.payload import SEALED
from datp_tasks.model.sealed import MASK, data_key_of, masked
from datp_tasks.seals.data_key import DataKey

KEY = DataKey("0123456789abcdef", bytes(range(32)))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Whatever UTF-8 can hold.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@given(VALUES)
def test_any_value_comes_out_as_it_went_in(value: Any) -> None:
    sealed = KEY.seal("t00-1", value)
    assert KEY.open("t00-1", sealed) == value
    assert data_key_of(sealed) == KEY.id


def test_the_same_value_is_the_same_text_within_a_transaction_only() -> None:
    value = {"name": "Ann"}
    assert KEY.seal("t00-1", value) == KEY.seal("t00-1", dict(value))
    assert KEY.seal("t00-1", value) != KEY.seal("t00-2", value)
    assert KEY.seal("t00-1", value) != DataKey("0123456789abcdef", bytes(32)).seal("t00-1", value)


def test_a_value_of_another_transaction_or_altered_does_not_open() -> None:
    sealed = KEY.seal("t00-1", {"amount": 5})
    with pytest.raises(SealBroken):
        KEY.open("t00-2", sealed)
    (text,) = sealed.values()
    for place in range(17, len(text), 9):
        other = "A" if text[place] != "A" else "B"
        with pytest.raises(SealBroken):
            KEY.open("t00-1", {"$sealed": text[:place] + other + text[place + 1 :]})


@pytest.mark.parametrize("text", [5, None, "", "x", f"{KEY.id}.", f"{KEY.id}.????", f"{KEY.id}.ä"])
def test_what_only_looks_sealed_does_not_open(text: object) -> None:
    with pytest.raises(SealBroken):
        KEY.open("t00-1", {SEALED: text})


def test_a_sealed_text_is_read_in_one_spelling_only() -> None:
    (text,) = KEY.seal("t00-1", {"amount": 5}).values()
    with pytest.raises(SealBroken):
        KEY.open("t00-1", {SEALED: f"{text[:30]}\n{text[30:]}"})


def test_a_fingerprint_needs_the_key() -> None:
    other = DataKey(KEY.id, bytes(32))
    assert KEY.fingerprint("x") == KEY.fingerprint("x")
    assert KEY.fingerprint("x") != KEY.fingerprint("y")
    assert KEY.fingerprint("x") != other.fingerprint("x")


@pytest.mark.parametrize("value", [None, {}, {"a": 1}, [1], {"$sealed": "x.y", "more": 1}, "text"])
def test_what_is_not_sealed_is_shown(value: Any) -> None:
    assert masked(value) == value


def test_what_is_sealed_is_masked() -> None:
    assert masked(KEY.seal("t00-1", {"a": 1})) == MASK
    assert bytes(range(32)).hex() not in repr(KEY)


def test_two_values_of_a_transaction_have_two_nonces() -> None:
    """A nonce that came twice under one key would give both values away."""
    values = [{"a": number} for number in range(50)]
    sealed = [KEY.seal("t00-1", value)[SEALED].partition(".")[2] for value in values]
    assert len({base64.urlsafe_b64decode(each)[:12] for each in sealed}) == 50
