"""The files that a transaction passes through are those that ARCHITECTURE.md lists, and few."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import datp_tasks
from datp_tasks import Pipeline
from datp_tasks.testing import Kit

PACKAGE = Path(datp_tasks.__file__).parent
PAGE = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
FILES_MAX = 25


def files_entered(datp: Kit) -> set[str]:
    """Files of the package of which a function is called between submit and final."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            entered.add(path.relative_to(PACKAGE).as_posix())

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        datp.submit("two", {"amount": 1})
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {path for path in entered if not path.startswith("testing/")}


def test_the_page_lists_the_files_that_a_transaction_passes_through(datp: Kit) -> None:
    @datp.step("t/add")
    def add(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "added": True}

    datp.use(Pipeline("two").step("t/add").step("t/add").build())
    # The first one fills caches; workers are warm afterwards.
    assert datp.status(datp.submit("two", {"amount": 1})).status == "success"

    part = PAGE.partition("\n## The way of a transaction\n")[2].partition("\n### ")[0]
    carrying = re.findall(r"^\| `(\S+\.py)` \|", part, re.MULTILINE)
    [others] = re.findall(r"The trace also enters (.+?): names", part, re.DOTALL)
    instruments = re.findall(r"`(\S+\.py)`", others)
    assert 10 < len(carrying) <= FILES_MAX
    assert sorted([*carrying, *instruments]) == sorted(files_entered(datp))
