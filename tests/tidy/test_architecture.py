"""ARCHITECTURE.md says what the code says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from datp_tasks.jobs import schedule

ROOT = Path(__file__).resolve().parents[2]
PAGES = {name: (ROOT / name).read_text() for name in ("ARCHITECTURE.md", "CONTRIBUTING.md")}
PAGE = PAGES["ARCHITECTURE.md"]
PACKAGE = ROOT / "datp_tasks"
#: Folders of tests that are no room: rings, house rules, helpers.
RINGS = {
    *("acceptance", "benchmarks", "chaos", "cluster", "docs", "examples", "mutants", "support"),
    *("tidy", "typing", "upgrade"),
}
LINE_MAX = 120
#: Files and folders that a page names: with a folder, from the package or from the top.
PATH = re.compile(r"`([a-z_]+/[\w/.]*)`")


def part(heading: str) -> str:
    """What stands below a heading, up to the next one."""
    return PAGE.partition(f"\n{heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]


def rooms_of_the_page() -> list[str]:
    items = re.findall(r"^- (`\w+/`(?:, `\w+/`)*):", part("## The rooms"), re.MULTILINE)
    return [name for item in items for name in re.findall(r"`(\w+)/`", item)]


def test_the_jobs_are_those_that_beat_runs() -> None:
    rows = re.findall(r"^\| `(.+?)` \|", part("### Jobs"), re.MULTILINE)
    assert rows != []
    assert sorted(rows) == sorted(schedule.JOBS)


def test_every_room_has_a_line() -> None:
    rooms = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert sorted(rooms_of_the_page()) == rooms


def test_rooms_are_told_in_the_order_of_imports() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [layers] = [each["layers"] for each in contract["contracts"] if each["type"] == "layers"]
    level = {
        name.strip().removeprefix("datp_tasks."): number
        for number, layer in enumerate(layers)
        for name in layer.split("|")
    }
    levels = [level[room] for room in rooms_of_the_page()]
    assert levels == sorted(levels)


@pytest.mark.parametrize("page", PAGES)
def test_lines_are_short_enough_to_be_read_and_compared(page: str) -> None:
    """Rows of tables, which Markdown does not wrap, may be longer."""
    lines = [line for line in PAGES[page].splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > LINE_MAX] == []


def test_tests_mirror_the_rooms() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert folders - RINGS <= rooms
    assert rooms - folders == {"testing"}


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    named = set(PATH.findall(PAGES[page]))
    assert len(named) > 10
    tops = (ROOT, PACKAGE)
    assert {path for path in named if not any((top / path).exists() for top in tops)} == set()


def test_modules_that_the_documentation_names_exist() -> None:
    """By their path from the top, from the package, or from the tests."""
    tops = (ROOT, PACKAGE, ROOT / "tests")
    gone = {
        (page.name, path)
        for page in (*(ROOT / "docs").glob("*.md"), ROOT / "README.md")
        for path in re.findall(r"`([a-z_]+/[\w/]*\.(?:py|lua|sql))", page.read_text())
        if not any((top / path).exists() for top in tops)
    }
    assert gone == set()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)\)", PAGES[page])
    assert [each for each in targets if "://" not in each and not (ROOT / each).exists()] == []
