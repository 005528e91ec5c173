"""The list of mutants fits the code that it breaks and the tests that it names."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import workshop
from tests.mutants.mutant import FOLDER, ROOT, Mutant, load

MUTANTS = load()
MUTANTS_MIN = 60
#: How many of each part there are at least, so that none is left out.
PARTS_MIN = {
    "scripts": 20,
    "engine": 20,
    "record": 12,
    "jobs": 15,
    "rooms": 8,
    "faults": 20,
    "tenants": 80,
}
#: What a user would suffer is told in a sentence.
HARM_CHARS_MAX = 120

each_mutant = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.name))


@cache
def functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_there_are_enough_of_each_part_and_no_name_is_used_twice() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) >= MUTANTS_MIN
    assert sorted(names) == sorted(set(names))
    parts = [mutant.part for mutant in MUTANTS]
    assert {part for part, least in PARTS_MIN.items() if parts.count(part) < least} == set()


@each_mutant
def test_its_text_occurs_once_and_changes(mutant: Mutant) -> None:
    assert mutant.file.startswith("datp_tasks/")
    assert mutant.occurrences() == 1
    source = (ROOT / mutant.file).read_text()
    assert mutant.applied(source) != source


@each_mutant
def test_it_is_python_that_can_be_read(mutant: Mutant) -> None:
    if mutant.file.endswith(".py"):
        ast.parse(mutant.applied((ROOT / mutant.file).read_text()))


@each_mutant
def test_it_says_what_would_go_wrong(mutant: Mutant) -> None:
    assert mutant.harm.endswith(".")
    assert len(mutant.harm) <= HARM_CHARS_MAX


@each_mutant
def test_the_tests_that_it_names_exist(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), file
        assert not name or name.partition("[")[0] in functions(ROOT / file), test


def test_the_example_of_the_page_is_on_the_list() -> None:
    page = (ROOT / "docs" / "mutants.md").read_text()
    example = page.partition("```toml\n")[2].partition("```")[0]
    lists = "".join(path.read_text() for path in sorted(FOLDER.glob("*.toml")))
    assert example and example in lists


@pytest.mark.parametrize(
    ("run", "is_late"),
    [
        (workshop.TestRun(1, "FAILED tests/a.py::test_b - assert 1 == 2\n", 1.0), False),
        (
            workshop.TestRun(1, "E   Failed: Timeout (>60.0s)\nFAILED tests/a.py::test_b\n", 60.0),
            True,
        ),
        (workshop.TestRun(None, "", 300.0), True),
    ],
)
def test_one_that_was_found_by_a_test_that_took_too_long_is_told(
    run: workshop.TestRun, is_late: bool
) -> None:
    result = workshop.Result(MUTANTS[0], "found", run.seen_by)
    assert result.is_late is is_late
