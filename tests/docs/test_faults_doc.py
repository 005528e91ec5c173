"""The page of faults names guards, tests and mutants that exist and belong together."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.mutant import ROOT, load

MUTANTS = {mutant.name: mutant for mutant in load()}


def rows() -> list[tuple[str, str, str, str]]:
    page = (ROOT / "docs" / "faults.md").read_text()
    found = []
    for line in page.splitlines():
        if line.startswith("| ") and "`" in line:
            fault, guard, test, mutant = (cell.strip(" `") for cell in line.split("|")[1:-1])
            found.append((fault, guard, test, mutant))
    return found


@cache
def functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if hasattr(node, "name")}


def test_it_has_a_row_for_every_mutant_of_its_list() -> None:
    named = {mutant for *_, mutant in rows()}
    assert {name for name, each in MUTANTS.items() if each.part == "faults"} <= named


@pytest.mark.parametrize(("fault", "guard", "test", "mutant"), rows())
def test_a_row_names_what_exists(fault: str, guard: str, test: str, mutant: str) -> None:
    assert (ROOT / "datp_tasks" / guard).is_file()
    file, _, name = test.partition("::")
    assert name in functions(ROOT / "tests" / file)
    if mutant:
        # Broken there, a test of the same file sees it: else the row says more than is known.
        assert f"tests/{file}" in {each.partition("::")[0] for each in MUTANTS[mutant].tests}
