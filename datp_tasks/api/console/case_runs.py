"""Running the test cases of a pipeline in a process and on servers of their own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from datp_tasks.errors import DatpError
from datp_tasks.model.pipeline import PipelineDefinition

log = logging.getLogger("datp.console")

PROGRAM = "datp_tasks.testing.case_process"
#: Two servers are started for it, which takes some seconds.
RUN_S = 120.0
GRACE_S = 10.0
ANSWER_BYTES_MAX = 1_000_000
READ_BYTES = 65_536
LOGGED_CHARS_MAX = 2_000
TROUBLE_CHARS_MAX = 500
#: All that the process gets of our environment: no settings, no secrets of this system.
PASSED_ON = {"PATH", "HOME", "LANG", "VIRTUAL_ENV", "TMPDIR", "TZ"}
#: `DATP_TEST_*` names servers that are there for tests.
PASSED_ON_PREFIXES = ("LC_", "PYTHON", "DATP_TEST_")


class CasesNotRun(DatpError):
    """Nothing is known of the cases; the text says why."""


class CasesBusy(CasesNotRun):
    """Others are being run; this passes."""


@dataclass(frozen=True, slots=True)
class ShownCase:
    status: str
    #: Where it differs from what the case expects; empty: it has passed.
    mistakes: Sequence[str]


class CaseRuns:
    """One run at a time for a process of the API: each costs two servers."""

    def __init__(self) -> None:
        self._is_busy = False

    async def run(
        self,
        definitions: Sequence[PipelineDefinition],
        cases: Sequence[str],
        note: Callable[[], Awaitable[None]],
    ) -> dict[str, ShownCase]:
        """What came of each case of the first definition; the others are those it may call.

        `note` is awaited when nothing stands in the way of the run any more, and before it.
        """
        if self._is_busy:
            raise CasesBusy("Test cases are being run already; wait until they are over.")
        self._is_busy = True
        try:
            await note()
            asked = {
                "definitions": [each.to_json() for each in definitions],
                "cases": list(cases),
            }
            return _results(await _answer(json.dumps(asked).encode()))
        finally:
            self._is_busy = False


async def _answer(asked: bytes) -> bytes:
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "ignore", "-m", PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=_environment(),
            start_new_session=True,
        )
        try:
            answer = await asyncio.wait_for(_exchange(process, asked), RUN_S)
        except TimeoutError:
            raise _trouble(f"they were not over after {RUN_S:.0f} s") from None
        finally:
            await _end(process)
        if process.returncode:
            said = _tail(errors)
            log.warning("test cases could not be run: %s", said)
            raise _trouble(_own_words(said.rpartition("\n")[2]))
    return answer


async def _exchange(process: asyncio.subprocess.Process, asked: bytes) -> bytes:
    """Send what is asked, and read the answer up to its end."""
    assert process.stdout is not None
    sending = asyncio.create_task(_send(process, asked))
    answer = bytearray()
    try:
        while part := await process.stdout.read(READ_BYTES):
            answer += part
            if len(answer) > ANSWER_BYTES_MAX:
                raise _trouble(f"their answer is longer than {ANSWER_BYTES_MAX:,} bytes")
    finally:
        sending.cancel()
    await process.wait()
    return bytes(answer)


async def _send(process: asyncio.subprocess.Process, asked: bytes) -> None:
    assert process.stdin is not None
    # A process that has ended already says why by itself.
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(asked)
        await process.stdin.drain()
    process.stdin.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it, and what its steps have left running; its servers end with it."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(_ended(process), GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        await asyncio.wait_for(_ended(process), GRACE_S)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for its end; what it still writes is read, else asyncio would not see the end."""
    assert process.stdout is not None
    while await process.stdout.read(READ_BYTES):
        pass
    await process.wait()


def _tail(errors: IO[bytes]) -> str:
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - LOGGED_CHARS_MAX))
    return errors.read(LOGGED_CHARS_MAX).decode(errors="replace").strip()


def _own_words(line: str) -> str:
    """What an error of ours says; that of a library is for the log."""
    name, _, text = line.partition(": ")
    if name.startswith(f"{DatpError.__module__}.") and text:
        return text[:TROUBLE_CHARS_MAX]
    return "their process has ended with an error, which the log of the API has"


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }


def _results(answer: bytes) -> dict[str, ShownCase]:
    try:
        found: list[dict[str, Any]] = json.loads(answer)
        return {each["case"]: ShownCase(each["status"], each["mistakes"]) for each in found}
    except (ValueError, KeyError, TypeError):
        log.warning("the process of the test cases gave no answer: %.200r", answer)
        raise _trouble("their process gave no answer that can be read") from None


def _trouble(why: str) -> CasesNotRun:
    return CasesNotRun(f"The test cases could not be run: {why}")
