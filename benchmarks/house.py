"""The whole product as `datp up` runs it, on the servers of the benchmark."""

from __future__ import annotations

import signal
import sys
import time
from typing import Self

import httpx

from benchmarks.stack import Stack
from datp_tasks.local.private_files import read_text
from datp_tasks.local.processes import StopStep

POLL_S = 0.1
READY_S = 60.0
PROGRAM = "from datp_tasks.cli import main; main()"
#: It stops workers, beat and the API itself, politely.
STOP_PLAN = (
    StopStep(signal.SIGTERM, 30),
    StopStep(signal.SIGKILL, 5),
)


class House:
    """API, beat, and one worker for each node group of the payments example, one process each."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._directory = stack.folder / f"up-{time.monotonic_ns()}"
        argv = (
            *(sys.executable, "-W", "ignore", "-c", PROGRAM, "up", "--example", "--no-flower"),
            *("--directory", str(self._directory)),
        )
        env = {**stack.environment, "DATP_BROKER_URL": stack.chain_url}
        self._process = stack.process("datp up", argv, env, STOP_PLAN)
        self.port = 0
        self.key = ""

    def __enter__(self) -> Self:
        self._process.start()
        ends_s = time.monotonic() + READY_S
        while not self._is_ready():
            if time.monotonic() > ends_s or not self._process.is_running():
                log = self._process.log_path.read_text(errors="replace")
                raise TimeoutError(f"datp up was not ready after {READY_S:g} s:\n{log[-2_000:]}")
            time.sleep(POLL_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.stop(self._process)

    def _is_ready(self) -> bool:
        url = read_text(self._directory / "api-url")
        self.key = read_text(self._directory / "api-key") or ""
        if not url or not self.key:
            return False
        self.port = int(url.rpartition(":")[2])
        try:
            return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False
