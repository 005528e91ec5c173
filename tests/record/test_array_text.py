"""Lists as texts of arrays: PostgreSQL reads what psycopg2's own form would have given it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from datp_tasks.record.array_text import array_text, if_any, with_array_texts
from datp_tasks.record.sole_statement import SoleStatements

TEXTS = [
    *("", "a", "NULL", "null", "a,b", "{}", '"', "\\", '\\"', "it's", "%s", " a ", "\n\t", "\x01"),
    *('{"a": "\\\\ \\" é 😀", "b": [1, 2]}', "' OR 1=1 --", "$$", "E'\\x41'", None),
]
KINDS: list[tuple[str, list[Any]]] = [
    ("text", TEXTS),
    ("bigint", [0, -1, 2**63 - 1, None]),
    ("boolean", [True, False, None]),
    (
        "timestamptz",
        [
            datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-5, minutes=-30))),
            None,
        ],
    ),
    ("text", []),
]


def read_back(engine: Engine, kind: str, column: list[Any]) -> list[Any]:
    """By text: Python has no year 10,000, which a time zone may lead to."""
    rows = f"unnest(%(column)s::{kind}[]) WITH ORDINALITY AS c (v, n)"
    sql = f"SELECT v::text AS v FROM {rows} ORDER BY n"
    as_text = [row.v for row in SoleStatements(engine).execute(sql, {"column": column})]
    with engine.connect() as connection:
        as_list = [row.v for row in connection.exec_driver_sql(sql, {"column": column})]
    assert as_text == as_list
    return as_text


@pytest.mark.parametrize(("kind", "column"), KINDS)
def test_a_column_arrives_as_psycopg2_sends_it(
    engine: Engine, kind: str, column: list[Any]
) -> None:
    assert isinstance(array_text(column), str)
    arrived = read_back(engine, kind, column)
    if kind == "text":
        assert arrived == column


def test_any_text_arrives(engine: Engine) -> None:
    # What PostgreSQL cannot keep is refused long before.
    kept = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.none() | kept, min_size=1, max_size=50))
    def arrives(column: list[str | None]) -> None:
        assert read_back(engine, "text", column) == column

    arrives()


def test_what_is_not_known_is_left_to_psycopg2() -> None:
    column = ["a", 1.5]
    assert array_text(column) is column
    assert with_array_texts({"n": 1, "rows": ("a",), "c": ["a"]}) == {
        "n": 1,
        "rows": ("a",),
        "c": '{"a"}',
    }


def test_status_words_are_texts_too() -> None:
    """A subclass of str is no str here, so that its text is never guessed."""

    class Word(str):
        pass

    column = [Word("a")]
    assert array_text(column) is column


def test_a_column_of_nothing_is_filled_up_beside_others(engine: Engine) -> None:
    some, none = [1, None, 3], [None, None, None]
    assert if_any(some) == some
    assert if_any(none) == []
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT * FROM unnest(%(a)s::bigint[], %(b)s::text[])",
            {"a": if_any(some), "b": if_any(none)},
        )
        assert list(map(tuple, found)) == [(1, None), (None, None), (3, None)]
