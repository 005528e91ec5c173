"""Starting the outside bank for the length of a test session."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from datp_tasks.errors import LocalStackError
from datp_tasks.local.ports import pick_free_port
from datp_tasks.local.processes import ManagedProcess, Surroundings
from tests.support.bank import HOST, Bank

START_TIMEOUT_S = 20.0
POLL_S = 0.02


@contextmanager
def running_bank(folder: Path) -> Iterator[Bank]:
    """A bank whose log is `bank.jsonl` in the folder; it ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    port = pick_free_port()
    env = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = ManagedProcess(
        "bank",
        (
            *(sys.executable, "-m", "tests.support.bank"),
            *("--port", str(port), "--log", str(folder / "bank.jsonl")),
        ),
        log_path=folder / "bank.log",
        surroundings=Surroundings(env),
    )
    process.start()
    bank = Bank(f"http://{HOST}:{port}")
    try:
        _wait_for(bank, process)
        yield bank
    finally:
        process.kill()


def _wait_for(bank: Bank, process: ManagedProcess) -> None:
    ends_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            bank.log()
        except OSError as error:
            if not process.is_running() or time.monotonic() > ends_s:
                raise LocalStackError(f"the bank does not start; see {process.log_path}") from error
            time.sleep(POLL_S)
        else:
            return
