"""A peer program, seen from the benchmark."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.stack import ROOT

PYTHON = ROOT / ".venv-peers" / "bin" / "python"
ANSWER_S = 180.0
END_S = 15.0


class PeerProcess:
    def __init__(self, module: str, env: Mapping[str, str], log_path: Path) -> None:
        if not PYTHON.exists():
            raise FileNotFoundError(f"{PYTHON} is missing; `make bench-peers` makes it")
        self._module = module
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._child = subprocess.Popen(
                [str(PYTHON), "-W", "ignore", "-m", f"benchmarks.peers.{module}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **env},
                cwd=ROOT,
                start_new_session=True,
            )

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, 9)
            self._child.wait()

    def order(self, what: str, mark: str, wanted: list[dict[str, Any]]) -> None:
        """It begins at once; `wait` says when it is done."""
        assert self._child.stdin is not None
        line = json.dumps({"what": what, "mark": mark, "wanted": wanted}) + "\n"
        self._child.stdin.write(line.encode())
        self._child.stdin.flush()

    def wait(self) -> None:
        """For one answer: that it is ready, or that an order is done."""
        assert self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], ANSWER_S)
        if not ready or not self._child.stdout.readline():
            log = self._log_path.read_text(errors="replace")[-2_000:]
            raise RuntimeError(f"{self._module} has not answered:\n{log}")
