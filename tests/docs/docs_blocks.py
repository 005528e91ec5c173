"""The code blocks of the pages for users, and who runs each of them.

Every block has one runner, or is named below with the reason why it has none. So a page cannot
get an example that nobody tries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^( *)```(.*)$")
FILE_NAME = re.compile(r"^# ([a-z_]+\.(?:py|yaml))$")

#: Pages that are followed at a terminal from top to bottom, in this order, on one `make up`.
STORIES: tuple[str, ...] = (
    "docs/quickstart.md",
    "README.md",
    "docs/pipelines.md",
    "docs/api.md",
    "docs/ledger.md",
)
#: Languages of pictures and of what a program printed: nothing to run.
PICTURES = ("", "text")

#: Blocks (page and first line) that another test runs.
ELSEWHERE: dict[tuple[str, str], str] = {
    ("docs/webhooks.md", "import base64"): (
        "tests/webhooks/test_webhook_docs.py::test_the_python_code_tells_ours_from_others"
    ),
    ("docs/webhooks.md", 'import { createHmac, timingSafeEqual } from "node:crypto";'): (
        "tests/webhooks/test_webhook_docs.py::test_the_javascript_code_tells_ours_from_others"
    ),
    ("docs/http-client.md", "import os"): (
        "tests/api/test_http_client.py::test_the_python_of_the_page_works"
    ),
    ("docs/http-client.md", "from datp_tasks.http import WebhookForged"): (
        "tests/api/test_http_client.py::test_the_receiver_of_the_page_tells_ours_from_others"
    ),
    ("docs/http-client.md", "verify() {   #"): (
        "tests/api/test_http_client.py::test_the_shell_of_the_page_tells_ours_from_others"
    ),
    ("docs/http-client.md", "api() { curl"): (
        "tests/api/test_http_client.py::test_the_commands_of_the_page_work"
    ),
    ("docs/events.md", "page=$(curl -s -H"): (
        "tests/api/test_api_events.py::test_the_commands_of_the_page_work"
    ),
    ("docs/submit-in.md", "# views.py"): (
        "tests/client/test_submit_in_django.py::test_a_view_commits_the_order_and_its_payment"
    ),
    ("docs/api.md", 'eval "$(datp env)"        # DATP_URL and DATP_KEY of a running `datp up`'): (
        "tests/acceptance/test_api_processes.py::test_the_examples_of_the_page_work"
    ),
    ("docs/operations.md", "export DATP_REDIS_CLUSTER=on"): (
        "tests/docs/test_operations_doc.py::test_the_settings_of_a_cluster_are_accepted"
    ),
    ("docs/operations.md", "pg_dump --dbname"): (
        "tests/transactions/test_backup.py"
        "::test_a_restored_database_and_an_empty_redis_go_on_by_themselves"
    ),
    ("docs/mutants.md", "[[mutant]]"): (
        "tests/mutants/test_mutants.py::test_the_example_of_the_page_is_on_the_list"
    ),
}
#: One test follows this page from top to bottom.
ELSEWHERE |= {
    ("docs/http-api.md", start): (
        "tests/api/test_http_api_page.py::test_the_commands_of_the_page_work"
    )
    for start in (
        "call() { curl",
        "# submitTransaction",
        "# getTransactionState",
        "# checkPipeline",
        "# addWebhookEndpoint",
        "# addService",
        "# createKey",
        "# startAudit",
        "# listNodes",
        "# startOriginal",
    )
}
#: Blocks that no test can run, and why.
NOT_RUN: dict[tuple[str, str], str] = {
    ("README.md", "make test    # all tests, on real servers"): (
        "it would run the test that runs it"
    ),
    ("docs/testing.md", "make chaos                          # five minutes"): (
        "takes minutes; tests/chaos/test_chaos_minute.py runs a minute of it"
    ),
    ("docs/http-client.md", 'pip install "datp-tasks[http]"'): (
        "installs from an index; tests/acceptance/test_wheel.py installs the wheel"
    ),
    ("docs/mutants.md", "make mutants"): "takes many minutes, and runs most of the suite",
    ("docs/ledger.md", "datp services add settlement --kind sawtooth"): (
        "names a ledger that does not exist; tests/ledger/test_ledger_cli.py runs these commands"
    ),
    ("docs/pipelines.md", "celery -A datp_tasks worker -Q master,kyc"): (
        "workers run until they are stopped; tests/acceptance/ starts them like this"
    ),
}


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    @property
    def first_line(self) -> str:
        return self.text.split("\n", 1)[0]

    @property
    def file(self) -> str | None:
        """The name of the file that this block is the content of, if its first line says so."""
        found = FILE_NAME.match(self.first_line)
        return found[1] if found else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def pages() -> dict[str, str]:
    """Every page for users, by its path from the top."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


@cache
def blocks() -> tuple[Block, ...]:
    return tuple(block for page, text in pages().items() for block in blocks_of(page, text))


def blocks_of(page: str, text: str) -> list[Block]:
    """The fenced blocks of one page."""
    found: list[Block] = []
    begun: tuple[int, str, str] | None = None
    inside: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        assert "~~~" not in line[:4], f"{page}:{number}: fences are written with ```"
        fence = FENCE.match(line)
        if begun is None and fence:
            begun, inside = (number, fence[1], fence[2].strip()), []
        elif begun is not None and fence and not fence[2]:
            body = "\n".join(each.removeprefix(begun[1]) for each in inside)
            found.append(Block(page, begun[0], begun[2], body))
            begun = None
        else:
            inside.append(line)
    assert begun is None, f"{page}:{begun and begun[0]}: the block is not closed"
    return found


def runner_of(block: Block) -> str:
    """Who runs a block: elsewhere, nobody, terminal, python, data, or a picture."""
    for known, runner in ((ELSEWHERE, "elsewhere"), (NOT_RUN, "nobody")):
        if any(is_meant(entry, block) for entry in known):
            return runner
    if block.language in PICTURES:
        return "picture"
    by_language = {
        "console": "terminal",
        "sh": "terminal",
        "python": "terminal" if block.file else "python",
        "yaml": "terminal" if block.file else "data",
        "json": "data",
    }
    assert block.language in by_language, f"{block}: nobody knows how to run {block.language!r}"
    runner = by_language[block.language]
    assert runner != "terminal" or block.page in STORIES, (
        f"{block}: put the page into STORIES, or the block into NOT_RUN with a reason"
    )
    return runner


def is_meant(entry: tuple[str, str], block: Block) -> bool:
    """The entry names the page and how the first line begins."""
    page, start = entry
    return block.page == page and block.first_line.startswith(start)


def run_by(runner: str, page: str | None = None) -> list[Block]:
    return [
        block for block in blocks() if page in (None, block.page) and runner_of(block) == runner
    ]
