"""All SQL lies in `record/sql/`, each query is named once, told what it is for, and used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from datp_tasks.record import queries
from datp_tasks.record.queries import FOLDER, HEADER, Queries, QueriesInvalid, load
from tests.support.parsed import parsed

PACKAGE = FOLDER.parent.parent
FILES = sorted(FOLDER.glob("*.sql"))
LINE_CHARS_MAX = 100

#: A statement, or the part of one, as it is spelled here: keywords in capitals.
SQL = re.compile(
    r"\b(?:SELECT|INSERT INTO|DELETE FROM|WHERE|RETURNING|FOR UPDATE|SKIP LOCKED)\s"
    r"|\bUPDATE\s+\w+(?:\s+\w+)?\s+SET\s"
    r"|\b(?:SET LOCAL|SAVEPOINT|COPY \w+)\s"
)
#: Where other SQL may be: what starts an embedded server, what a test asks the record, and the
#: tables, whose constraints and indexes are declared for the migrations.
ELSEWHERE = ("local/postgres.py", "testing/at_rest.py", "testing/servers.py", "record/*tables.py")

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), parsed(path.read_text())


def topic_of(node: ast.AST) -> str | None:
    """The topic whose queries a class names."""
    if not isinstance(node, ast.ClassDef):
        return None
    given = [keyword.value for keyword in node.keywords if keyword.arg == "topic"]
    return str(given[0].value) if given and isinstance(given[0], ast.Constant) else None


def texts(tree: ast.Module) -> Iterator[str]:
    """String constants, without docstrings."""
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def test_no_sql_is_written_anywhere_else() -> None:
    found = [
        (str(path), text)
        for path, tree in modules()
        if not any(path.match(pattern) for pattern in ELSEWHERE)
        for text in texts(tree)
        if SQL.search(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        'FIND = "SELECT 1 FROM alert"',
        'connection.exec_driver_sql(f"DELETE FROM {table}")',
        'sql = base + "WHERE owner = %(owner)s"',
        'RAISE = """\nINSERT INTO alert (kind) VALUES (1)\n"""',
        'SET = "UPDATE tx_summary s SET fence = 1"',
    ],
)
def test_sql_in_a_module_is_recognised(source: str) -> None:
    assert any(SQL.search(text) for text in texts(ast.parse(source)))


def test_each_file_is_named_by_one_class_and_each_of_its_queries_is_used() -> None:
    topics: list[str] = []
    unused: list[str] = []
    for _, tree in modules():
        for node in ast.walk(tree):
            topic = topic_of(node)
            if topic is None:
                continue
            assert isinstance(node, ast.ClassDef)
            topics.append(topic)
            used = {
                each.attr
                for each in ast.walk(tree)
                if isinstance(each, ast.Attribute)
                and isinstance(each.value, ast.Name)
                and each.value.id == node.name
            }
            unused += [f"{topic}.{name}" for name in load(topic) if name not in used]
    assert sorted(topics) == [path.stem for path in FILES]
    assert unused == []


@each_file
def test_each_query_says_what_it_is_for(path: Path) -> None:
    for part in HEADER.split(path.read_text())[3::3]:
        purpose = part.splitlines()[0]
        assert re.fullmatch(r"-- [A-Z].{10,}", purpose), purpose


@each_file
def test_lines_are_short_enough_to_be_read(path: Path) -> None:
    long = [line for line in path.read_text().splitlines() if len(line) > LINE_CHARS_MAX]
    assert long == []
    assert not re.search(r"[ \t]\n", path.read_text())


# Loading.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(queries, "FOLDER", tmp_path)
    return tmp_path


def test_a_query_is_loaded_by_its_name_without_its_comments(folder: Path) -> None:
    (folder / "birds.sql").write_text(
        "-- Of birds.\n\n-- :name one\n-- Why.\nSELECT 1\n  -- inside: 100 %\nFROM a\n\n"
        "-- :name two\n-- Why.\nSELECT '--'\n"
    )

    class Query(Queries, topic="birds"):
        one: str
        two: str

    assert Query.one == "SELECT 1\nFROM a"
    assert Query.two == "SELECT '--'"


def test_what_queries_say_alike_is_a_part_of_each(folder: Path) -> None:
    (folder / "birds.sql").write_text(
        "-- :part owls\n-- Why.\nowls AS (\n  SELECT 1\n)\n\n"
        "-- :name one\n-- Why.\nWITH\n-- :use owls\nSELECT 1\n\n"
        "-- :name two\n-- Why.\nWITH\n-- :use owls\nSELECT 2\n"
    )
    spaced = {name: " ".join(text.split()) for name, text in load("birds").items()}
    assert spaced == {
        "one": "WITH owls AS ( SELECT 1 ) SELECT 1",
        "two": "WITH owls AS ( SELECT 1 ) SELECT 2",
    }


@pytest.mark.parametrize("named", ["one", "one two three"])
def test_a_file_and_a_class_that_do_not_fit_cannot_be_imported(folder: Path, named: str) -> None:
    (folder / "birds.sql").write_text("-- :name one\nSELECT 1\n\n-- :name two\nSELECT 2\n")
    with pytest.raises(QueriesInvalid, match="two" if named == "one" else "three"):
        type("Query", (Queries,), {"__annotations__": dict.fromkeys(named.split())}, topic="birds")


@pytest.mark.parametrize(
    "source",
    [
        "SELECT 1\n-- :name one\nSELECT 1\n",
        "-- :name one\nSELECT 1\n-- :name one\nSELECT 2\n",
        "-- :name one\n-- Only a comment.\n",
        "-- :name one\nSELECT 1\n-- :use two\n",
        "-- :name one\nSELECT 1\n-- :part two\nSELECT 2\n",
        "-- :part one\nSELECT 1\n-- :name one\n-- :use one\n",
        # What is not understood is no comment: a condition would be lost.
        *(
            f"-- :part two\nAND true\n-- :name one\nSELECT 1 WHERE true\n-- :use two\n{mark}"
            for mark in (
                *("-- :use two", "--:use two\n", "-- :use two \n", "-- :uses two\n"),
                *("-- : use two\n", "\t-- :use two\n", "AND false -- :use two\n"),
            )
        ),
    ],
)
def test_a_file_in_which_something_is_lost_is_refused(folder: Path, source: str) -> None:
    (folder / "birds.sql").write_text(source)
    with pytest.raises(QueriesInvalid):
        load("birds")
