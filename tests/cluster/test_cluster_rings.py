"""The ring of the scripts runs on a cluster as it does on a single server.

Here a telling part of it, to be quick; `make test-cluster` runs all of it, and more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "script_calls",
    "script_sending",
    "claim",
    "stop",
    "checkpoint",
    "hand_over",
    "park",
    "take_over",
)


@pytest.mark.timeout(180)
def test_a_telling_part_of_the_scripts_ring_is_green_on_three_masters() -> None:
    files = [f"tests/live/test_{part}.py" for part in PARTS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env={**os.environ, "DATP_TEST_REDIS_CLUSTER": "1"},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
    assert " passed" in done.stdout
