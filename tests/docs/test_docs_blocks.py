"""No block is left out: each has a runner, or a reason why it has none."""

from __future__ import annotations

import re

import pytest

from tests.docs.docs_blocks import (
    ELSEWHERE,
    NOT_RUN,
    ROOT,
    STORIES,
    Block,
    blocks,
    blocks_of,
    is_meant,
    pages,
    runner_of,
)
from tests.docs.docs_terminal import agrees, typed_in

NAMED = re.compile(r"tests/[\w/]+\.py(?:::\w+)?")
COMMAND = re.compile(r"^\s*(\$ |datp |make |celery |curl |pytest |python |docker )", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


@pytest.mark.parametrize("block", blocks(), ids=str)
def test_every_block_has_a_runner(block: Block) -> None:
    if runner_of(block) == "picture":
        assert not COMMAND.search(block.text), f"{block}: commands belong into a console block"


@pytest.mark.parametrize("entry", [*ELSEWHERE, *NOT_RUN], ids=lambda entry: entry[0])
def test_a_block_that_is_not_run_here_is_named_exactly(entry: tuple[str, str]) -> None:
    meant = [block for block in blocks() if is_meant(entry, block)]
    assert len(meant) == 1, f"{entry} names {[str(block) for block in meant]}"
    others = [each for each in (*ELSEWHERE, *NOT_RUN) if is_meant(each, meant[0])]
    assert others == [entry], f"{meant[0]} is named more than once"


def test_stories_are_pages_with_something_to_type() -> None:
    typed = {block.page for block in blocks() if runner_of(block) == "terminal"}
    assert set(STORIES) == typed


def exists(named: str) -> bool:
    path, _, name = named.partition("::")
    file = ROOT / path
    if not file.is_file() or not name:
        return file.is_file()
    text = file.read_text()
    return f"\ndef {name}(" in text or f"\nasync def {name}(" in text


@pytest.mark.parametrize("page", pages())
def test_tests_that_a_page_names_exist(page: str) -> None:
    assert [named for named in NAMED.findall(pages()[page]) if not exists(named)] == []


def test_tests_that_run_blocks_elsewhere_exist() -> None:
    assert [named for named in ELSEWHERE.values() if not exists(named)] == []
    reasons = [named for reason in NOT_RUN.values() for named in NAMED.findall(reason)]
    assert [named for named in reasons if not exists(named)] == []


@pytest.mark.parametrize("page", pages())
def test_links_between_pages_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    targets = [found[0] for found in LINK.findall(pages()[page]) if "://" not in found[0]]
    assert [target for target in targets if not (folder / target).exists()] == []


def test_every_page_is_linked_from_the_first_one() -> None:
    linked = {found[0] for found in LINK.findall(pages()["README.md"])}
    assert [page for page in pages() if page != "README.md" and page not in linked] == []


# The helpers themselves: a check that cannot say no is none.


@pytest.mark.parametrize(
    ("expected", "found", "verdict"),
    [
        ("status   success", "status  success  \n", True),
        ("status   success", "status  failed\n", False),
        ("status   success", "status  success\nmore\n", False),
        ("transaction t…", "transaction t07-0199\n", True),
        ("…\nlast", "one\ntwo\nlast\n", True),
        ("…\nlast", "one\nlast\nmore\n", False),
        ("first\n…", "first\n", True),
        ("│ beat │ … │", "│ beat   │ 4711 │\n", True),
        ("", "", True),
        ("", "a word\n", False),
        ("a word", "", False),
        ("a.c", "abc\n", False),
    ],
)
def test_what_is_printed_is_compared(expected: str, found: str, verdict: bool) -> None:
    assert agrees(expected, found) is verdict


def test_commands_and_what_they_print_are_told_apart() -> None:
    found = list(typed_in("$ one \\\n>   more\nprinted\n$ two"))
    assert [(each.command, each.printed) for each in found] == [
        ("one \\\n  more", "printed"),
        ("two", ""),
    ]


def test_a_block_that_no_test_runs_is_refused() -> None:
    [unknown] = blocks_of("docs/new.md", "```perl\nprint 1\n```")
    with pytest.raises(AssertionError, match="nobody knows how to run 'perl'"):
        runner_of(unknown)
    [typed] = blocks_of("docs/new.md", "```sh\ndatp nodes\n```")
    with pytest.raises(AssertionError, match="put the page into STORIES"):
        runner_of(typed)
    with pytest.raises(AssertionError, match="not closed"):
        blocks_of("docs/new.md", "```sh\ndatp nodes\n")
