"""Where mutants are tried: a copy of the tree, and servers that its test runs share.

The checkout is only read. A copy belongs to one job, so that jobs do not meet.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

from sqlalchemy.engine import make_url

from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.record.database import migrate
from tests.mutants.mutant import ROOT, Mutant

Verdict = Literal["found", "NOT FOUND", "text is not there once", "tests cannot run"]

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", ".datp", ".*_cache", ".hypothesis", "__pycache__", "dist", "build"
)
#: A test that a mutant keeps from ending is stopped after so long.
TEST_S = 60
#: All tests of one mutant; they are meant to take seconds.
RUN_S = 300
#: Bytecode is cached by the second of a change: each writing gets another one, long ago.
FIRST_WRITING_S = 1_000_000_000

#: On a busy machine that may be no fault of the mutant.
LATE = "it took too long"
SEEN_BY = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TestRun:
    """One run of pytest."""

    #: As pytest says it; None if it had to be ended.
    code: int | None
    output: str
    seconds: float

    @property
    def seen_by(self) -> str:
        """The first test that was red."""
        if self.code is None:
            return f"({LATE})"
        found = SEEN_BY.search(self.output)
        late = f" ({LATE})" if "Failed: Timeout" in self.output else ""
        return found.group(1) + late if found else ""


@dataclass(frozen=True, slots=True)
class Result:
    mutant: Mutant
    verdict: Verdict
    seen_by: str = ""
    seconds: float = 0.0
    output: str = ""

    @property
    def is_late(self) -> bool:
        """Found because something did not end in time, which a busy machine does as well."""
        return self.verdict == "found" and self.seen_by.endswith(f"({LATE})")


class Workshop:
    """A copy of the tree in which one mutant at a time lives."""

    def __init__(self, folder: Path, redis_url: str, database_url: str) -> None:
        self._tree = folder / "tree"
        shutil.copytree(ROOT, self._tree, ignore=LEFT_OUT)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(self._tree),
            "DATP_TEST_REDIS_URL": redis_url,
            "DATP_TEST_DATABASE_URL": database_url,
        }
        self._writings = 0
        self._running: subprocess.Popen[str] | None = None

    def test(self, tests: Sequence[str]) -> TestRun:
        """Run these tests in the copy, until the first is red."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        began_s = monotonic()
        process = subprocess.Popen(
            [*command, "-n", "0", f"--timeout={TEST_S}", *tests],
            cwd=self._tree,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Servers and workers that a test leaves behind end with it.
            start_new_session=True,
        )
        self._running = process
        try:
            output, _ = process.communicate(timeout=RUN_S)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            self.stop()
            output, code = process.communicate()[0], None
        finally:
            self._running = None
        return TestRun(code, output, monotonic() - began_s)

    def stop(self) -> None:
        """End the run that is under way."""
        if self._running is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)

    def try_out(self, mutant: Mutant) -> Result:
        """Break the copy, see what its tests say, and mend it again."""
        if mutant.occurrences(self._tree) != 1:
            return Result(mutant, "text is not there once")
        path = self._tree / mutant.file
        source = path.read_text()
        self._write(path, mutant.applied(source))
        try:
            run = self.test(mutant.tests)
        finally:
            self._write(path, source)
        return Result(mutant, _verdict(run), run.seen_by, run.seconds, run.output)

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source)
        self._writings += 1
        second = FIRST_WRITING_S + self._writings
        os.utime(path, (second, second))


def _verdict(run: TestRun) -> Verdict:
    if run.code == 0:
        return "NOT FOUND"
    # Python itself ends with 1, too, when it cannot even start pytest.
    is_red = run.code == 1 and run.seen_by and "ERROR collecting" not in run.output
    # One that hangs is seen as well: the run does not end.
    return "found" if is_red or run.code is None else "tests cannot run"


@contextmanager
def workshop(folder: Path) -> Iterator[Workshop]:
    """One with servers of its own, for as long as this lasts."""
    redis = RedisServer(folder / "redis", appendfsync="no")
    postgres = PostgresServer(folder / "postgres", durable=False)
    try:
        redis.start()
        postgres.start()
        # Every database is made after this one, so each run finds its tables there.
        template = make_url(postgres.url).set(database="template1")
        migrate(template.render_as_string(hide_password=False))
        made = Workshop(folder, redis.url, postgres.url)
        try:
            yield made
        finally:
            made.stop()
    finally:
        postgres.destroy()
        redis.destroy()
