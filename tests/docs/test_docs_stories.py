"""Newcomers type what the pages say, word for word, and see what the pages show."""

from __future__ import annotations

import pytest

from tests.docs.docs_blocks import STORIES, Block, run_by
from tests.docs.docs_terminal import UP, Terminal, agrees, typed_in

pytestmark = pytest.mark.acceptance


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", STORIES)
def test_a_page_can_be_followed_word_for_word(page: str, terminal: Terminal) -> None:
    terminal.new_shell()
    if page != STORIES[0]:
        terminal.type(UP)
    for block in run_by("terminal", page):
        follow(block, terminal)


def follow(block: Block, terminal: Terminal) -> None:
    if block.file is not None:
        (terminal.folder / block.file).write_text(block.text + "\n")
    elif block.language == "sh":
        code, printed = terminal.run(f"set -e\n{block.text}\nset +e")
        assert code == 0, f"{block}:\n{printed}"
    else:
        for typed in typed_in(block.text):
            printed = terminal.type(typed.command)
            assert agrees(typed.printed, printed), (
                f"{block}: {typed.command}\nshould print:\n{typed.printed}\nbut did:\n{printed}"
            )


@pytest.mark.parametrize("page", STORIES)
def test_every_file_on_a_page_is_used_by_a_command_after_it(page: str) -> None:
    blocks = run_by("terminal", page)
    for number, block in enumerate(blocks):
        if block.file is None:
            continue
        after = " ".join(each.text for each in blocks[number + 1 :] if each.file is None)
        name = block.file.removesuffix(".py")
        assert name in after, f"{block}: no command uses {block.file}"
