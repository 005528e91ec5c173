"""The files that a transaction passes through are those that ARCHITECTURE.md lists, and few."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path

import datp_tasks
from datp_tasks.testing.servers import Servers

PACKAGE = Path(datp_tasks.__file__).parent
PAGE = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
FILES_MAX = 25


def files_entered(datp_servers: Servers) -> set[str]:
    """Files of the package of which a function is called between submit and final.

    In an interpreter of its own: with a profile function set in the test process, after many other
    tests, this was seen to hang on CPython 3.11 where no timeout of pytest could end it.
    """
    traced = subprocess.run(
        [sys.executable, "-m", "tests.tidy.traced_transaction"],
        env=os.environ | {"TRACED_PLACES": json.dumps([*astuple(datp_servers)])},
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(json.loads(traced.stdout))


def test_the_page_lists_the_files_that_a_transaction_passes_through(datp_servers: Servers) -> None:
    part = PAGE.partition("\n## The way of a transaction\n")[2].partition("\n### ")[0]
    carrying = re.findall(r"^\| `(\S+\.py)` \|", part, re.MULTILINE)
    [others] = re.findall(r"The trace also enters (.+?): names", part, re.DOTALL)
    instruments = re.findall(r"`(\S+\.py)`", others)
    assert 10 < len(carrying) <= FILES_MAX
    entered = files_entered(datp_servers)
    assert set(carrying) <= entered
    # An instrument that works now and then, such as the publishing of costs, may be missing.
    assert entered <= {*carrying, *instruments}
